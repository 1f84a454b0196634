"""What an engine says it uses: its own memory, or on a card what was lent for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pytest

from services.diffusion.engine import EngineSpec
from services.diffusion.loaded import LoadedModel
from services.diffusion.native_thread import NativeThread
from services.diffusion.painter import Painted, Sketch, Watcher


@dataclass
class Placed:
    """A painter that is somewhere."""

    device: str
    library: str = ""

    def load(self, progress: Callable[[float], None]) -> None:
        raise NotImplementedError

    def paint(self, sketch: Sketch, watcher: Watcher) -> Painted:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def renew() -> NoReturn:
    raise NotImplementedError


def loaded(device: str, on_card_mib: int | None) -> LoadedModel:
    spec = EngineSpec("sdxl", {"model": "/m"}, on_card_mib=on_card_mib)
    thread = NativeThread()
    thread.close()
    return LoadedModel("m", spec, Placed(device), thread, renew, lambda **_: None)


async def test_on_a_card_it_is_what_was_lent() -> None:
    model = loaded("a card", 448)
    assert model.usage() == (448, 0)
    async with model.turn:
        model.watch_peak(3000)
        assert model.usage() == (3448, 3000)
        assert model.peak_mib() == 0
    assert model.usage() == (448, 0)


@pytest.mark.parametrize(("device", "on_card_mib"), [("", None), ("", 448)])
async def test_elsewhere_it_is_the_memory_of_the_process(
    device: str, on_card_mib: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = iter([1000, 1000, 1070, 1020, 1005])
    monkeypatch.setattr("services.diffusion.loaded.process_usage", lambda: (next(held), 0))
    model = loaded(device, on_card_mib)
    assert model.usage() == (1000, 0)
    async with model.turn:
        model.watch_peak(3000)
        assert model.usage() == (1070, 70)
        assert model.peak_mib() == 70  # the most, not the last
    assert model.usage() == (1005, 0)
