"""The configured networks as hosting wants to know them, described without loading them.

A description is made of the configuration, the file, and the device of the house. What a request
may add is declared for the largest picture that is taken: a figure measured on small ones would
promise too little to the first large one.
"""

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

from chassis import log
from chassis.errors import Fault
from hosting.house_device import HOST, Device
from hosting.values import Kind, ModelSpec
from imaging.values import Bounds, Encoding
from services.matte.config import ModelConfig
from services.matte.core import memory
from services.matte.core.placement import place
from services.matte.engine import EngineSpec, HubCode, as_json
from services.matte.networks import files
from services.matte.networks.families import FAMILIES, family_of

Present = Callable[[], Device]
"""What there is to place models on, as far as is known now."""

HUB_DIR = Path("hub")
"""Where snapshots of a hub are kept unless a path says otherwise; from models_dir."""
_HUB_BYTES = 1 << 30
"""Of weights that are not there yet: more than any of these networks has."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all models of the service stand on."""

    models_dir: Path
    max_px: int
    encoding: Encoding
    device: Present = lambda: HOST


class NetworkFile:
    """`hosting.values.Source` of one configured network."""

    def __init__(self, key: str, config: ModelConfig, ground: Ground) -> None:
        self._key, self._config, self._ground = key, config, ground
        self._path = ground.models_dir / (config.path or HUB_DIR)
        self._weights_bytes = 0
        self._on_card = False

    def stamp(self) -> Hashable:
        """Which file it is, by what changes with its contents, and the device."""
        try:
            found = self._path.stat()
        except OSError:
            return None, self._ground.device()
        return found.st_mtime_ns, found.st_size, found.st_ino, self._ground.device()

    def peak_mib(self, px: int) -> int:
        """What a request for a picture of so many pixels adds, where the network is."""
        return self._peak_mib(px, on_card=self._on_card)

    def describe(self) -> ModelSpec:
        """A file that is missing or broken is no reason not to start: `problem` says what it is."""
        config, device = self._config, self._ground.device()
        # One that cannot be loaded is leased for by next to nothing: nobody is evicted for it.
        engine, resident_mib, peak_mib = self._engine(device, on_card=False, why=""), 1, 0
        created_ms, problem = 0, ""
        try:
            weights = self._weights()
            self._weights_bytes = weights.size_bytes
            created_ms = weights.modified_ns // 1_000_000
            engine, resident_mib, peak_mib = self._placed(weights.size_bytes, device)
        except Fault as fault:
            problem = fault.message
            log.get().warning("model file", model=self._key, problem=problem)
        return ModelSpec(
            key=self._key,
            kind=Kind.MATTE,
            lane=config.lane,
            resident_mib=resident_mib,
            peak_transient_mib=peak_mib,
            places=config.places,
            max_instances=config.max_instances,
            family=config.family,
            owner=config.owner,
            created_unix_ms=created_ms,
            modalities=("image",),
            engine=as_json(engine),
            problem=problem,
        )

    def _weights(self) -> files.Weights:
        if self._config.kind == "hub":
            return files.Weights(_HUB_BYTES, 0)
        return files.look(self._path, self._config.kind)

    def _placed(self, weights_bytes: int, device: Device) -> tuple[EngineSpec, int, int]:
        """The engine's view, and what is leased for it: at rest, and for a request."""
        config = self._config
        on_card_mib = memory.card_resident_mib(weights_bytes)
        needed_mib = on_card_mib + self._peak_mib(self.max_px, on_card=True)
        placed = place(config.device, device.card, device.lendable_mib, needed_mib)
        self._on_card = placed.on_card
        peak_mib = self.peak_mib(self.max_px)
        engine = self._engine(device, on_card=placed.on_card, why=placed.why)
        if placed.on_card:
            resident_mib = on_card_mib
        elif device.card:
            # A model that leaves the card alone is leased next to nothing of it.
            return engine, 1, 0
        else:
            torch = config.kind != "onnx"
            resident_mib = memory.host_resident_mib(weights_bytes, torch=torch)
        return engine, config.resident_mib or resident_mib, peak_mib

    def _peak_mib(self, px: int, *, on_card: bool) -> int:
        estimated_mib = memory.peak_mib(
            self._network_mib(), self._weights_bytes, min(px, self.max_px), on_card=on_card
        )
        return self._config.peak_mib or estimated_mib

    def _network_mib(self) -> int:
        """Of a network that cannot be told before it is loaded, the middle one."""
        family = family_of(self._config.network, self._path.name, None, "")
        return FAMILIES[family or "isnet"].peak_mib

    @property
    def max_px(self) -> int:
        """Pixels of a picture, at most."""
        return self._config.max_px or self._ground.max_px

    def _engine(self, device: Device, *, on_card: bool, why: str) -> EngineSpec:
        config = self._config
        hub = None
        if config.repo is not None and config.revision is not None:
            hub = HubCode(config.repo, config.revision)
        return EngineSpec(
            path=self._path,
            kind=config.kind,
            network=config.network,
            hub=hub,
            places=config.places,
            threads=config.threads or len(os.sched_getaffinity(0)),
            on_card=on_card,
            placement_why=why,
            device=device.name,
            compile=config.compile == "on",
            bounds=Bounds(max_px=self.max_px),
            encoding=self._ground.encoding,
        )
