"""`cohabit check`: everything is read and nothing is started."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

GOOD = "llm: {models: {a: {path: a.gguf, source: 'hf:o/r/a.gguf'}, b: {path: b.gguf}}}\n"


def written(folder: Path, text: str) -> str:
    path = folder / "cohabit.yaml"
    path.write_text(text)
    return str(path)


def check(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["check", *words])
    return done.exit_code, done.stdout, done.stderr


def test_a_good_file_can_be_used_and_missing_weights_are_named(tmp_path: Path) -> None:
    code, said, noted = check("--config", written(tmp_path, GOOD))
    assert (code, said) == (0, f"{tmp_path}/cohabit.yaml can be used: 2 models.\n")
    assert "Model a:" in noted
    assert "cohabit pull a" in noted


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("llm: {models: {a: {pth: x}}}\nedge: {lissen: x}\n", ["a.path: missing", "edge.lissen"]),
        ("scheduler: {residency: {models: {z: {pinned: true}}}}\n", ["expected a configured"]),
        ("a: [\n", ["expected YAML"]),
    ],
)
def test_every_mistake_is_a_line_and_the_status_is_2(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    code, said, noted = check("--config", written(tmp_path, text))
    assert (code, said) == (2, "")
    for mistake in mistakes:
        assert any(mistake in line for line in noted.splitlines())


def test_checksums_are_there_for_scripts_and_no_model_changes_one(tmp_path: Path) -> None:
    def checksums(text: str) -> dict[str, str]:
        code, said, _ = check("--json", "--config", written(tmp_path, text))
        assert code == 0
        found: dict[str, str] = json.loads(said)["restart_checksums"]
        return found

    before = checksums(GOOD)
    assert set(before) == {"broker", "scheduler", "llm", "edge"}
    assert checksums(GOOD.replace("b.gguf", "c.gguf")) == before
    after = checksums(GOOD + "broker: {reserve_mib: 7}\n")
    assert {name for name in before if before[name] != after[name]} == {"broker"}
