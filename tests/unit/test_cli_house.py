"""The configuration as the command sees it: checked whole, with what is missing."""

from pathlib import Path

import pytest

from chassis.config import ConfigError
from cli import house

GOOD = """
models_dir: weights
llm:
  models:
    a: {path: a.gguf, source: "hf:o/r/a.gguf"}
    b: {path: b.gguf}
edge:
  listen: 127.0.0.1:9999
"""
BAD = """
llm:
  models:
    a: {pth: a.gguf}
edge:
  lissen: 127.0.0.1:9999
broker:
  device: tpu
"""


ALL = ("broker", "scheduler", "llm", "simulated")


def written(folder: Path, text: str) -> Path:
    path = folder / "cohabit.yaml"
    path.write_text(text)
    return path


def test_a_good_configuration_says_who_is_where(tmp_path: Path) -> None:
    whole = house.load(written(tmp_path, GOOD))
    assert whole.edge_url == "http://127.0.0.1:9999"
    assert set(whole.addresses) == {"broker", "scheduler", "llm"}
    assert whole.addresses["llm"] == f"unix:{whole.house.run_dir}/llm.sock"


PRETENDED = "{kind: language, lane: chat, resident_mib: 9, context_tokens: 99}"


@pytest.mark.parametrize(
    ("text", "services", "usable"),
    [
        ("", ("broker", "scheduler"), None),
        ("llm:\n", ("broker", "scheduler", "llm"), None),
        (
            f"simulated: {{models: {{s: {PRETENDED}}}}}",
            ("broker", "scheduler", "simulated"),
            "s",
        ),
        ("simulated:\nllm: {models: {a: {path: a.gguf}}}", ALL, None),
    ],
)
def test_a_model_service_is_there_when_its_section_is(
    tmp_path: Path, text: str, services: tuple[str, ...], usable: str | None
) -> None:
    whole = house.load(written(tmp_path, text))
    assert whole.services == services
    assert tuple(whole.addresses) == services
    assert whole.usable == usable


def test_a_name_is_taken_once_over_all_services(tmp_path: Path) -> None:
    text = f"llm: {{models: {{a: {{path: a.gguf}}}}}}\nsimulated: {{models: {{a: {PRETENDED}}}}}\n"
    with pytest.raises(ConfigError, match=r"yaml:2: simulated\.models\.a: expected another name"):
        house.load(written(tmp_path, text))


def test_models_without_a_file_are_missing(tmp_path: Path) -> None:
    whole = house.load(written(tmp_path, GOOD))
    assert [file.model for file in whole.missing()] == ["a", "b"]
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "b.gguf").touch()
    assert [file.model for file in whole.missing()] == ["a"]


def test_everything_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        house.load(written(tmp_path, BAD))
    said = str(caught.value)
    assert "cohabit.yaml:4: llm.models.a.pth: unknown key" in said
    assert "cohabit.yaml:6: edge.lissen: unknown key" in said
    assert "cohabit.yaml:8: broker.device" in said


def test_a_model_of_several_files_is_missing_by_its_parts(tmp_path: Path) -> None:
    parts = "{diffusion_model: dit.gguf, vae: {path: vae.gguf, source: 'hf:o/r/v.gguf'}}"
    text = f"diffusion: {{models: {{p: {{family: flux, files: {parts}}}}}}}\n"
    with pytest.raises(ConfigError, match="needs"):  # the family says which files it takes
        house.load(written(tmp_path, text))
    whole_text = text.replace("vae: {", "clip_l: c.gguf, t5xxl: t.gguf, vae: {")
    whole = house.load(written(tmp_path, whole_text))
    assert [file.label for file in whole.missing()] == [
        "p (diffusion_model)", "p (clip_l)", "p (t5xxl)", "p (vae)",
    ]  # fmt: skip
    assert whole.usable is None  # nobody can chat with it
