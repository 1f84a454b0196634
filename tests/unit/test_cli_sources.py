"""How the sources of models are read, and where their files may go."""

from pathlib import Path

import pytest

from cli.console import Refused
from cli.sources import Hub, Local, Wheel, parse, target_in


def test_hub_source_defaults_to_main() -> None:
    source = parse("hf:owner/repo/deep/model.Q4.gguf")
    assert source == Hub("owner/repo", "deep/model.Q4.gguf", "main")
    assert source.file_name == "model.Q4.gguf"


def test_hub_revision_follows_the_at_sign() -> None:
    source = parse("hf:o/r/m.gguf@refs/pr/3")
    assert isinstance(source, Hub)
    assert source.revision == "refs/pr/3"
    assert source.url("http://h/") == "http://h/o/r/resolve/refs%2Fpr%2F3/m.gguf"


def test_hub_base_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror:81/")
    assert Hub("o/r", "a b.gguf").url() == "http://mirror:81/o/r/resolve/main/a%20b.gguf"


def test_wheel_source_knows_its_name_unless_it_is_a_glob() -> None:
    assert parse("pypi:llm-x==0.1.2/*.gguf") == Wheel("llm-x", "0.1.2", "*.gguf")
    assert Wheel("p", "1", "*.gguf").file_name is None
    assert Wheel("p", "1", "pkg/m.gguf").file_name == "m.gguf"


def test_everything_else_is_a_path() -> None:
    assert parse("./m.gguf") == Local(Path("m.gguf"))
    assert parse("/a/b:c.gguf") == Local(Path("/a/b:c.gguf"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hf:",
        "hf:owner/repo",
        "hf:owner/repo/",
        "hf:owner/repo/../x",
        "hf:owner/repo/a//b",
        "hf:owner/repo/m.gguf@",
        "hf:../repo/m.gguf",
        "pypi:name/file",
        "pypi:name==1",
        "pypi:name==1/",
        "pypi:name==1/../*.gguf",
        "pypi:--index-url==1/x",
        "https://host/m.gguf",
    ],
)
def test_a_bad_source_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(Refused, match=r"expected hf:owner/repo/path.*pypi:package==version"):
        parse(text)


@pytest.mark.parametrize("name", ["../m.gguf", "/etc/m.gguf", ".", "a/../../m.gguf"])
def test_a_name_stays_below_the_models_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="leads out of"):
        target_in(tmp_path, name)


def test_a_name_may_have_folders(tmp_path: Path) -> None:
    assert target_in(tmp_path, "sub/m.gguf") == tmp_path / "sub" / "m.gguf"
