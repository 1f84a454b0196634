"""A configured model as its file describes it, now and when the file has changed."""

from pathlib import Path

from services.llm.catalog import ModelFile
from services.llm.config import ModelConfig
from tests.tiny_gguf import make_tiny_gguf


def test_a_file_that_comes_later_changes_the_description(tmp_path: Path) -> None:
    file = ModelFile("tiny", ModelConfig(path=Path("tiny.gguf"), resident_mib=700), tmp_path)
    before, absent = file.stamp(), file.describe()
    assert "not there" in absent.problem
    assert absent.resident_mib == 1  # nobody is evicted for it
    assert file.stamp() == before

    path = make_tiny_gguf(tmp_path / "tiny.gguf")
    there = file.stamp()
    assert there != before
    spec = file.describe()
    assert (spec.problem, spec.resident_mib, spec.context_tokens) == ("", 700, 4096)
    assert spec.created_unix_ms > 0

    path.write_bytes(path.read_bytes()[:1000])
    assert file.stamp() != there
    assert "broken" in file.describe().problem


def test_every_part_of_a_model_counts(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    make_tiny_gguf(first)
    file = ModelFile("m", ModelConfig(path=Path(first.name)), tmp_path)
    assert "00002-of-00002.gguf is not there" in file.describe().problem
    before = file.stamp()
    make_tiny_gguf(tmp_path / "m-00002-of-00002.gguf")
    assert file.stamp() != before
    assert not file.describe().problem
    alone = ModelFile("m", ModelConfig(path=first), tmp_path)
    assert alone.describe().resident_mib == file.describe().resident_mib > 1
