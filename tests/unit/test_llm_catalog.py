"""A configured model as its file describes it, now and when the file has changed."""

from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from hosting.house_device import HOST, Device
from services.llm.catalog import ModelFile
from services.llm.config import ModelConfig
from services.llm.engine import ALL_LAYERS
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


def tiny(tmp_path: Path, device: Device = HOST, **fields: object) -> ModelFile:
    make_tiny_gguf(tmp_path / "tiny.gguf")
    config = ModelConfig.model_validate({"path": "tiny.gguf"} | fields)
    return ModelFile("tiny", config, tmp_path, lambda: device)


def test_on_a_card_what_is_placed_there_is_leased(tmp_path: Path) -> None:
    whole = tiny(tmp_path, Device("gpu0", 24_000, "NVIDIA GeForce RTX 4090")).describe()
    assert (whole.engine["gpu_layers"], whole.engine["profile"]) == (ALL_LAYERS, "ada")
    assert whole.engine["kv_type"] == "q8_0"
    assert whole.resident_mib > 400
    none = tiny(tmp_path, Device("gpu0", 100, "NVIDIA GeForce RTX 4090")).describe()
    assert (none.engine["gpu_layers"], none.engine["profile"]) == (0, "cpu")
    assert "does not fit" in none.engine["placement_why"]
    assert none.resident_mib == 1


def test_a_device_that_is_known_later_changes_the_description(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "tiny.gguf")
    device = HOST
    file = ModelFile("tiny", ModelConfig(path=Path("tiny.gguf")), tmp_path, lambda: device)
    before = file.stamp()
    assert file.describe().engine["gpu_layers"] == 0
    device = Device("gpu0", 24_000, "NVIDIA H200")
    assert file.stamp() != before
    assert file.describe().engine["gpu_layers"] == ALL_LAYERS


def test_parked_prefixes_take_no_more_than_the_cache_unless_told(tmp_path: Path) -> None:
    assert tiny(tmp_path).describe().engine["prefix_cache_mib"] == 4
    assert tiny(tmp_path, prefix_cache_mib=99).describe().engine["prefix_cache_mib"] == 99


def test_a_small_cache_bounds_the_context(tmp_path: Path) -> None:
    assert tiny(tmp_path, cache_tokens=1000).describe().context_tokens == 1000
    assert tiny(tmp_path, cache_tokens=9999).describe().context_tokens == 4096


def test_an_override_changes_the_next_description(tmp_path: Path) -> None:
    file = tiny(tmp_path)
    before, wide = file.stamp(), file.describe()
    file.override({"context_tokens": "512", "places": "1"})
    assert file.stamp() != before
    narrow = file.describe()
    assert (narrow.context_tokens, narrow.places) == (512, 1)
    assert narrow.resident_mib < wide.resident_mib
    assert narrow.overrides == {"context_tokens": "512", "places": "1"}
    with pytest.raises(Fault):
        file.override({"places": "0"})
    assert file.describe() == narrow
    file.override({})
    assert file.describe() == wide


def test_the_file_of_a_swap_stays_until_all_is_taken_back(tmp_path: Path) -> None:
    file = tiny(tmp_path)
    other = make_tiny_gguf(tmp_path / "other.gguf", context=2048)
    file.replace_file(other, {"places": "1"})
    assert (file.path, file.describe().context_tokens, file.describe().places) == (other, 2048, 1)
    file.override({"places": "2"})
    assert (file.path, file.describe().places) == (other, 2)
    file.override({})
    assert file.path.name == "tiny.gguf"


def test_a_file_that_cannot_be_used_replaces_nothing(tmp_path: Path) -> None:
    file = tiny(tmp_path, Device("gpu0", 200))
    before = file.describe()
    other = make_tiny_gguf(tmp_path / "other.gguf")
    other.write_bytes(other.read_bytes()[:5000])
    with pytest.raises(Fault, match="cut off"):
        file.replace_file(other, {})
    make_tiny_gguf(other)
    with pytest.raises(Fault) as caught:
        file.replace_file(other, {"places": "256"})
    assert caught.value.reason is Reason.NEVER_FITS
    assert file.describe() == before


DRAFTED: dict[str, Any] = {"speculation": "draft", "draft_path": "draft.gguf"}


def test_a_draft_model_is_memory_beside_the_models_own(tmp_path: Path) -> None:
    draft = make_tiny_gguf(tmp_path / "draft.gguf", layers=1, embd=32, heads=2)
    spec, alone = tiny(tmp_path, **DRAFTED).describe(), tiny(tmp_path).describe()
    (extra,) = spec.extras
    assert extra.name == "draft"
    assert 0 < extra.mib < spec.resident_mib
    assert spec.resident_mib - alone.resident_mib < extra.mib  # logits of guesses, no weights
    assert spec.engine["draft_path"] == str(draft)
    assert spec.engine["draft_gpu_layers"] == 0
    assert not alone.extras
    assert alone.engine["draft_path"] is None


def test_a_draft_file_that_changes_changes_the_description(tmp_path: Path) -> None:
    file = tiny(tmp_path, **DRAFTED)
    before = file.stamp()
    assert "draft.gguf is not there" in file.describe().problem
    make_tiny_gguf(tmp_path / "draft.gguf")
    assert file.stamp() != before
    assert not file.describe().problem


def test_a_draft_goes_where_its_model_is_unless_told(tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "draft.gguf")
    card = Device("gpu0", 24_000, "NVIDIA GeForce RTX 4090")

    def layers(device: Device, **fields: object) -> object:
        return tiny(tmp_path, device, **DRAFTED, **fields).describe().engine["draft_gpu_layers"]

    assert (layers(card), layers(HOST)) == (ALL_LAYERS, 0)
    assert (layers(card, draft_gpu_layers=1), layers(card, draft_gpu_layers=0)) == (1, 0)
    assert layers(card, draft_gpu_layers="all", gpu_layers=0) == ALL_LAYERS


def test_a_draft_model_needs_a_file_and_may_stand_by_without_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a draft_path"):
        ModelConfig.model_validate({"path": "m.gguf", "speculation": "draft"})
    idle = tiny(tmp_path, draft_path="draft.gguf")
    assert (idle.describe().problem, idle.describe().extras) == ("", ())
    idle.override({"speculation": '"draft"'})
    assert "draft.gguf is not there" in idle.describe().problem
