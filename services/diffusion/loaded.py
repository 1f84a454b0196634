"""A loaded model: what all its requests share, and how each is made ready for it."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from chassis.errors import Fault, Reason
from hosting.usage import process_usage
from services.diffusion import inputs, limits, loras
from services.diffusion.core.pace import Pace
from services.diffusion.engine import EngineSpec
from services.diffusion.fingerprints import Fingerprints
from services.diffusion.native_thread import NativeThread
from services.diffusion.outbox import Outbox
from services.diffusion.painter import Inputs, Painter
from services.diffusion.result_cache import ResultCache
from services.diffusion.settling import settle
from services.diffusion.values import Asked, AskedLora, Lora, Settings

_DRAWN_SEEDS = 1 << 31
"""Short enough to be typed again."""


@dataclass(slots=True)
class LoadedModel:
    """One model in this process."""

    key: str
    spec: EngineSpec
    painter: Painter
    thread: NativeThread
    renew: Callable[[], NoReturn]
    """Ends this process, and has another take its place."""
    count: Callable[..., None]
    """Adds to what this process counts (`EngineProcess.count`). Event loop only."""
    reload_s: float = 0.0
    """What that takes."""
    facts: tuple[str, ...] = ()
    """What is loaded: fingerprints of the files, the library's build, and how they are set up."""
    pace: Pace = field(default_factory=Pace)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whose request the device works on."""
    delivering: set[Outbox] = field(default_factory=set)
    """Of requests that the device is done with, and whose readers are not."""
    cache: ResultCache = field(init=False)
    _idle_mib: int = 0
    _peak_mib: int = 0
    _lent_mib: int = 0

    def __post_init__(self) -> None:
        self.cache = ResultCache(self.spec.result_cache_entries, self.spec.result_cache_mib)

    async def prepare(self, asked: Asked) -> tuple[Settings, Inputs]:
        """What applies to a request, and its pictures. Raises Fault; nothing is allocated before
        everything that can be refused without it was looked at.
        """
        limits.check(asked, self.spec)
        return await asyncio.to_thread(self._prepared, asked)

    def unchanged(self, used: tuple[Lora, ...]) -> bool:
        """Whether the files of adapters are still what they were when the request came. Blocks."""
        try:
            return all(self.fingerprints.of(Path(lora.file)) == lora.fingerprint for lora in used)
        except OSError:
            return False

    def usage(self) -> tuple[int, int]:
        """(materialised_mib, transient_mib): the latter is what has grown while a request runs.

        On a card its driver alone could say: there it is what was leased. This process's own
        memory, which holds what is offloaded, is none of the card's.
        """
        if self.painter.device and self.spec.on_card_mib is not None:
            lent_mib = self._lent_mib if self.turn.locked() else 0
            return self.spec.on_card_mib + lent_mib, lent_mib
        held_mib, _ = process_usage()
        if not self.turn.locked():
            return held_mib, 0
        grown_mib = max(0, held_mib - self._idle_mib)
        self._peak_mib = max(self._peak_mib, grown_mib)
        return held_mib, grown_mib

    def watch_peak(self, lent_mib: int) -> None:
        """A request begins, with a transient lease of so much."""
        self._idle_mib, _ = process_usage()
        self._peak_mib, self._lent_mib = 0, lent_mib

    def peak_mib(self) -> int:
        """The most that was seen in use above what was before; 0: not measured, as on a card."""
        self.usage()
        return 0 if self.painter.device else self._peak_mib

    def _prepared(self, asked: Asked) -> tuple[Settings, Inputs]:
        spec = self.spec
        size = limits.size_of(spec, asked.width_px, asked.height_px, inputs.init_size(asked))
        found = tuple(self._lora(lora, f"loras[{at}]") for at, lora in enumerate(asked.loras))
        settings = settle(asked, spec, size, found, secrets.randbelow(_DRAWN_SEEDS))
        return settings, inputs.read(asked, size)

    def _lora(self, asked: AskedLora, param: str) -> Lora:
        if asked.path:
            path = self._trusted(asked.path, param)
        else:
            folder = Path(self.spec.lora_dir) if self.spec.lora_dir is not None else None
            path = loras.resolve(asked, folder, self.spec.family, param)
        try:
            fingerprint = self.fingerprints.of(path)
        except OSError:  # it went away a moment ago
            raise _lora_gone(param) from None
        return Lora(asked.lora_id or path.stem, str(path), asked.scale, fingerprint)

    def _trusted(self, asked: str, param: str) -> Path:
        if not self.spec.allow_lora_paths:
            raise Fault(
                Reason.LORA_PATH_REFUSED,
                "LoRAs are not taken by path here; name one by `lora_id`, or allow it with "
                "`diffusion.allow_lora_paths`.",
                metadata={"param": f"{param}.path"},
            )
        path = Path(asked)
        if not path.is_absolute() or path.suffix not in loras.SUFFIXES or "\0" in asked:
            endings = " or ".join(loras.SUFFIXES)
            raise limits.wrong(f"{param}.path", f"must be an absolute path ending in {endings}")
        if not loras.is_file(path):
            raise _lora_gone(f"{param}.path")
        return loras.checked(path, self.spec.family, f"{param}.path")


def _lora_gone(param: str) -> Fault:
    return Fault(
        Reason.LORA_NOT_FOUND,
        f"There is no file for `{param}`; ask for one of the LoRAs that are listed.",
        metadata={"param": param},
    )
