"""The adapters on real files: the small network in ONNX, and a tiny one like BiRefNet in torch."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chassis.errors import Fault, Reason
from services.matte.engine import EngineSpec, HubCode
from services.matte.networks import files
from services.matte.networks.network import Network
from services.matte.networks.opening import open_network, sample
from services.matte.networks.prepare import to_input, to_matte
from services.matte.networks.torch_network import TorchNetwork
from tests.matte_kit import U2NETP
from tests.tiny_birefnet import TinyBiRefNet, export, script

REVISION = "0123456789" * 4


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("torch") / "tiny_birefnet.pt2")


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return script(tmp_path_factory.mktemp("torch") / "tiny_birefnet.pt")


def torch_spec(path: Path, **fields: Any) -> EngineSpec:
    return EngineSpec(path, kind="torch-export", **fields)


def refused(spec: EngineSpec) -> str:
    with pytest.raises(Fault) as caught:
        open_network(spec)
    assert caught.value.reason is Reason.MODEL_FAILED
    return caught.value.message


def check_finds_the_disc(network: Network) -> None:
    """A bright disc on a dark ground, in a picture that is no square."""
    picture = sample(120)[20:100]
    matte = network.matte(picture, colors=False)
    assert matte.alpha.shape == (80, 120)
    assert matte.alpha.dtype == np.uint8
    assert matte.solved is None
    assert matte.alpha[40, 60] > 200
    assert matte.alpha[2, 2] < 60
    for width_px, height_px in ((1, 1), (1, 9), (70, 3)):
        bare = np.full((height_px, width_px, 3), 90, np.uint8)
        assert network.matte(bare, colors=True).alpha.shape == (height_px, width_px)


@pytest.mark.skipif(not U2NETP.is_file(), reason=f"{U2NETP} is not there")
def test_the_small_network_in_onnx() -> None:
    network = open_network(EngineSpec(U2NETP))
    assert (network.device, network.solves) == ("cpu", False)
    check_finds_the_disc(network)


@pytest.mark.skipif(not U2NETP.is_file(), reason=f"{U2NETP} is not there")
def test_a_damaged_network_fails_at_load_and_never_at_a_picture(tmp_path: Path) -> None:
    data = U2NETP.read_bytes()
    half = tmp_path / "u2netp.onnx"
    half.write_bytes(data[: len(data) // 2])
    assert "cannot be used" in refused(EngineSpec(half))
    with pytest.raises(Fault, match="is no whole ONNX file"):
        files.look(half, "onnx")
    renamed = tmp_path / "net.onnx"
    renamed.write_bytes(data)
    assert open_network(EngineSpec(renamed)).device == "cpu"  # told by its input


def test_modules_that_torch_wrote(exported: Path, scripted: Path) -> None:
    assert files.torch_kind(exported) == "exported"
    assert files.torch_kind(scripted) == "script"
    for path in (exported, scripted):
        network = open_network(torch_spec(path))
        assert (network.device, network.solves) == ("cpu", False)
        check_finds_the_disc(network)
        network.close()


def test_the_finest_of_several_answers_is_taken(exported: Path) -> None:
    network = TorchNetwork(torch_spec(exported))
    picture = sample(64)
    tensor = torch.from_numpy(to_input(picture, network.family, network.family.side_px))
    with torch.inference_mode():
        finest = TinyBiRefNet()(tensor)[-1]
    wanted = to_matte(finest.numpy(), network.family, 64, 64)
    assert np.abs(network.matte(picture, colors=False).alpha.astype(int) - wanted).max() <= 1


def test_a_card_that_is_not_there_is_no_reason_not_to_serve(exported: Path) -> None:
    network = open_network(torch_spec(exported, on_card=True))
    assert network.device == ("card" if torch.cuda.is_available() else "cpu")


class _Same:
    """What a compiler makes: another object that answers the same."""

    def __init__(self, eager: Any) -> None:
        self._eager = eager

    def __call__(self, tensor: torch.Tensor) -> Any:
        return self._eager(tensor)


@pytest.mark.parametrize(
    ("compiled", "trusted"),
    [
        (_Same, True),
        (lambda eager: lambda tensor: [one * 0.5 for one in eager(tensor)], False),
        (lambda eager: lambda tensor: [one * float("nan") for one in eager(tensor)], False),
        (lambda eager: lambda tensor: 1 / 0, False),
    ],
)
def test_what_was_compiled_is_trusted_only_if_its_mattes_are_the_same(
    exported: Path, monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., Any], trusted: bool
) -> None:
    made: list[Any] = []

    def compile_(eager: Any) -> Any:
        made.append(compiled(eager))
        return made[-1]

    monkeypatch.setattr(torch, "compile", compile_)
    network = open_network(torch_spec(exported, compile=True))
    assert isinstance(network, TorchNetwork)
    assert (network._module is made[0]) is trusted
    check_finds_the_disc(network)


def test_a_compiler_that_refuses_leaves_the_network_as_it_is(scripted: Path) -> None:
    check_finds_the_disc(open_network(torch_spec(scripted, compile=True)))  # it takes no scripts


def test_colours_are_solved_on_tensors_as_on_the_host(exported: Path) -> None:
    """What a network on a card does, on the device that is here."""
    network = TorchNetwork(torch_spec(exported))
    network.solves = True
    picture = sample(90)
    matted = network.matte(picture, colors=True)
    assert matted.solved is not None
    assert matted.solved.foreground.shape == picture.shape
    assert matted.solve_ms > 0
    again = network.solve(picture, matted.alpha)
    for one, other in zip(matted.solved, again, strict=True):
        assert one.dtype == np.uint8
        assert np.abs(one.astype(int) - other).mean() < 3
    share = matted.alpha[..., None] / 255
    shown = share * again.foreground + (1 - share) * again.background
    assert np.abs(shown - picture).mean() < 3


def test_other_files_of_torch_are_told_from_modules(tmp_path: Path) -> None:
    weights = tmp_path / "birefnet.pth"
    torch.save(TinyBiRefNet().state_dict(), weights)
    with pytest.raises(Fault, match="holds weights without a module"):
        files.look(weights, "torch-export")
    assert "holds weights without a module" in refused(torch_spec(weights))
    (tmp_path / "net.pt2").write_bytes(b"PK\x05\x06" + bytes(18))  # an empty archive
    assert "holds weights without" in refused(torch_spec(tmp_path / "net.pt2", network="isnet"))
    assert "set `network`" in refused(torch_spec(tmp_path / "net.pt2"))


def test_a_module_that_answers_no_matte_fails_at_load(tmp_path: Path) -> None:
    class Wide(torch.nn.Module):
        def forward(self, picture: torch.Tensor) -> torch.Tensor:
            return torch.cat([picture, picture])

    path = tmp_path / "birefnet.pt2"
    example = torch.zeros(1, 3, 1024, 1024)
    torch.export.save(torch.export.export(Wide().eval(), (example,)), path)
    assert "not one matte" in refused(torch_spec(path))


MODEL_PY = """
from .settings import BIAS
from tests.tiny_birefnet import TinyBiRefNet

class Net(TinyBiRefNet):
    bias = BIAS
"""


def hub(cache: Path, **changed: str | None) -> EngineSpec:
    """A snapshot as huggingface_hub keeps it, so that nothing is fetched."""
    folder = cache / "models--owner--name" / "snapshots" / REVISION
    folder.mkdir(parents=True)
    auto = {"auto_map": {"AutoModelForImageSegmentation": "model.Net"}}
    written = {"model.py": MODEL_PY, "settings.py": "BIAS = 0\n", "config.json": json.dumps(auto)}
    for name, text in (written | changed).items():
        if text is not None:
            (folder / name).write_text(text)
    torch.save(TinyBiRefNet().state_dict(), folder / "pytorch_model.bin")
    return EngineSpec(cache, "hub", "birefnet", HubCode("owner/name", REVISION))


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in [name for name in sys.modules if name.startswith("_hub_")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("_offline")
def test_code_of_a_hub_runs_from_the_snapshot_that_is_there(tmp_path: Path) -> None:
    check_finds_the_disc(open_network(hub(tmp_path)))


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model.py": "import no_such_thing\n"}, "needs no_such_thing, which is not installed"),
        ({"model.py": "1 / 0\n"}, "ZeroDivisionError"),
        ({"config.json": "{}"}, "names no class"),
        ({"config.json": '{"auto_map": {"AutoModel": "../model.Net"}}'}, "names no class"),
        ({"config.json": None}, "FileNotFoundError"),
    ],
)
def test_a_hub_s_code_that_does_not_work_is_a_sentence(
    tmp_path: Path, changed: dict[str, str | None], told: str
) -> None:
    message = refused(hub(tmp_path, **changed))
    assert told in message
    assert "owner/name at 012345678901" in message


@pytest.mark.usefixtures("_offline")
def test_a_hub_that_cannot_be_reached_is_a_sentence(tmp_path: Path) -> None:
    spec = EngineSpec(tmp_path, "hub", "birefnet", HubCode("owner/name", REVISION))
    assert "cannot be fetched" in refused(spec)
