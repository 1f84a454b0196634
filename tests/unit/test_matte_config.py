"""The `matte` section: what is refused, and what becomes of it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hosting.house_device import Device
from hosting.values import Kind
from imaging.values import Bounds, Encoding, Format
from services.matte.catalog import Ground, NetworkFile
from services.matte.config import MatteConfig, ModelConfig
from services.matte.core import memory
from services.matte.core.placement import place
from services.matte.engine import EngineSpec, HubCode, as_json, spec_of
from services.matte.solving import peak_bytes

HUB = {
    "kind": "hub",
    "repo": "owner/name",
    "revision": "0123456789" * 4,
    "trust_remote_code": True,
    "network": "birefnet",
}
GRAPH = b"\x08\x09\x3a\x03abc"


def config(**values: Any) -> ModelConfig:
    return ModelConfig.model_validate(values)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "expected path"),
        ({"path": "a", "repo": "owner/name"}, "repo is for kind hub alone"),
        ({"path": "a", "trust_remote_code": True}, "trust_remote_code is for kind hub alone"),
        ({"path": "a", "compile": True}, "compile is torch's"),
        (HUB | {"trust_remote_code": False}, "trust_remote_code: true if you trust it"),
        ({k: v for k, v in HUB.items() if k != "revision"}, "40 hexadecimal digits"),
        (HUB | {"revision": "main"}, "should match pattern"),
        (HUB | {"repo": "../name"}, "should match pattern"),
        (HUB | {"network": "auto"}, "kind hub needs network"),
        ({"path": "a", "places": 0}, "greater than or equal to 1"),
        ({"path": "a", "network": "sam"}, "'auto', 'u2net', 'isnet' or 'birefnet'"),
    ],
)
def test_what_a_model_may_not_say(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match="(?s)" + told):
        config(**values)


def test_the_default_model_must_be_there_and_is_the_only_one() -> None:
    one = {"models": {"a": {"path": "a.onnx"}}}
    assert MatteConfig.model_validate(one).default == "a"
    two = {"models": one["models"] | {"b": {"path": "b.onnx"}}}
    assert not MatteConfig.model_validate(two).default
    assert MatteConfig.model_validate(two | {"default_model": "b"}).default == "b"
    with pytest.raises(ValidationError, match="there is no model 'c'"):
        MatteConfig.model_validate(two | {"default_model": "c"})
    assert MatteConfig.model_validate({}).encoding == Encoding(Format.WEBP, 85)


def test_an_engine_is_told_its_spec_as_json() -> None:
    spec = EngineSpec(
        Path("/m/a.pt2"),
        kind="torch-export",
        hub=HubCode("owner/name", "0" * 40),
        bounds=Bounds(max_px=7),
        encoding=Encoding(Format.PNG, 3),
        compile=True,
    )
    assert spec_of(as_json(spec)) == spec
    assert spec_of(as_json(EngineSpec(Path("a")))) == EngineSpec(Path("a"))


def test_a_description_names_what_is_wrong_and_leases_next_to_nothing(tmp_path: Path) -> None:
    ground = Ground(tmp_path, 1000, Encoding())
    file = NetworkFile("m", config(path="u2net.onnx"), ground)
    spec, stamp = file.describe(), file.stamp()
    assert "u2net.onnx cannot be read" in spec.problem
    assert (spec.resident_mib, spec.peak_transient_mib) == (1, 0)
    (tmp_path / "u2net.onnx").write_bytes(GRAPH)
    assert file.stamp() != stamp
    spec = file.describe()
    assert (spec.problem, spec.kind, spec.lane, spec.places) == ("", Kind.MATTE, "matte", 2)
    assert spec.modalities == ("image",)
    assert spec.peak_transient_mib == file.peak_mib(1000) == file.peak_mib(10**9)
    roomy = NetworkFile("m", config(path="u2net.onnx"), Ground(tmp_path, 10**7, Encoding()))
    assert file.peak_mib(1000) + 400 < roomy.peak_mib(10**7)
    declared = NetworkFile("m", config(path="u2net.onnx", resident_mib=9, peak_mib=8), ground)
    assert (declared.describe().resident_mib, declared.describe().peak_transient_mib) == (9, 8)


def test_a_network_goes_on_the_card_where_it_and_its_peak_fit(tmp_path: Path) -> None:
    (tmp_path / "u2net.onnx").write_bytes(GRAPH)

    def described(lendable_mib: int, card: str = "a card", **values: Any) -> Any:
        device = Device("gpu0", lendable_mib, card)
        ground = Ground(tmp_path, 1000, Encoding(), lambda: device)
        return NetworkFile("m", config(path="u2net.onnx", **values), ground).describe()

    fits = described(10_000)
    assert fits.engine["on_card"]
    assert fits.engine["device"] == "gpu0"
    assert fits.resident_mib >= 448
    for small in (described(500), described(10_000, device="cpu")):
        assert not small.engine["on_card"]
        assert (small.resident_mib, small.peak_transient_mib) == (1, 0)
    assert "does not fit" in described(500).engine["placement_why"]
    on_host = described(0, card="")
    assert not on_host.engine["on_card"]
    assert on_host.resident_mib > 100


def test_placement_says_why() -> None:
    assert not place("cpu", "c", 9, 1).on_card
    assert not place("auto", "", 9, 1).on_card
    assert place("auto", "c", 9, 9).on_card
    assert not place("auto", "c", 9, 10).on_card


@pytest.mark.parametrize("size", [(1, 1), (512, 512), (2048, 2048), (6000, 4000)])
def test_what_is_leased_for_a_picture_covers_solving_and_what_is_held_meanwhile(
    size: tuple[int, int],
) -> None:
    px = size[0] * size[1]
    held_bytes = px * 7  # the picture, what the network saw, the matte
    assert memory.peak_mib(0, 0, px) << 20 >= peak_bytes(*size) + held_bytes
