"""The configured models as hosting wants to know them, described by their files' headers.

A description is made of the configuration, the files, and the device of the house. A change of any
of them changes the stamp.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path

from chassis import log
from chassis.errors import Fault, Reason
from hosting.house_device import HOST, Device
from hosting.values import Kind, ModelSpec
from services.diffusion import headers
from services.diffusion.config import DiffusionConfig, ModelConfig
from services.diffusion.core import peak
from services.diffusion.engine import EngineSpec, Role, as_json
from services.diffusion.families import files_problem
from services.diffusion.footprint import on_device
from services.diffusion.kinds import problem_of

Present = Callable[[], Device]
"""What there is to place models on, as far as is known now."""


class PictureModel:
    """`hosting.values.Source` of one configured model."""

    def __init__(
        self, key: str, config: DiffusionConfig, models_dir: Path, device: Present = lambda: HOST
    ) -> None:
        self._key, self._config, self._models_dir = key, config, models_dir
        self._model, self._device = config.models[key], device

    @property
    def engine(self) -> EngineSpec:
        """As configured, without what the files would tell."""
        return self._config.spec(self._model, self._models_dir, on_card=bool(self._device().card))

    def stamp(self) -> Hashable:
        """Which files these are, each by what changes with its contents (None: not there)."""
        paths = self._model.paths(self._models_dir)
        return tuple(_stamp(paths[role]) for role in sorted(paths)), self._device()

    def describe(self) -> ModelSpec:
        """A file that is missing or wrong is no reason not to start: `problem` says what it is."""
        model, spec = self._model, self.engine
        # One that cannot be loaded is leased for by next to nothing: nobody is evicted for it.
        resident_mib, problem = 1, ""
        try:
            spec, resident_mib = on_device(
                spec,
                looked_into(model, self._models_dir),
                on_card=bool(self._device().card),
            )
        except Fault as fault:
            problem = fault.message
            log.get().warning("model file", model=self._key, problem=problem)
        if not problem:
            resident_mib = model.resident_mib or resident_mib
        if self._device().card:
            spec = replace(spec, on_card_mib=resident_mib)
        return ModelSpec(
            key=self._key,
            kind=Kind.DIFFUSION,
            lane=model.lane,
            resident_mib=resident_mib,
            peak_transient_mib=0 if problem else _least_peak_mib(spec),
            max_instances=model.max_instances,
            family=model.stands_in_for,
            owner=model.owner,
            created_unix_ms=self._changed_unix_ms(),
            modalities=("text", "image") if model.references else ("text",),
            engine=as_json(spec),
            problem=problem,
        )

    def _changed_unix_ms(self) -> int:
        """When the newest of its files was changed; 0: none is there."""
        found = (_stamp(path) for path in self._model.paths(self._models_dir).values())
        return max((stamp[0] // 1_000_000 for stamp in found if stamp is not None), default=0)


def looked_into(model: ModelConfig, models_dir: Path) -> dict[Role, int]:
    """What each file takes when it is loaded, in bytes. Blocks. Raises Fault MODEL_FAILED for files
    that are missing, broken, or not what their roles say.
    """
    if problem := files_problem(model.family, model.files):
        raise Fault(Reason.MODEL_FAILED, problem)
    loaded: dict[Role, int] = {}
    for role, path in model.paths(models_dir).items():
        header = headers.read(path)
        if problem := problem_of(role, model.family, header.tensors):
            raise Fault(Reason.MODEL_FAILED, f"The file {path} {problem}.")
        loaded[role] = header.loaded_bytes
    return loaded


def _least_peak_mib(spec: EngineSpec) -> int:
    """What a picture of the default size takes at least; requests tell their own.

    The scheduler leaves that much free beside the model: the peak in one piece would keep a model
    off a card that can make its pictures tile by tile.
    """
    size = peak.Size(spec.defaults.width_px * spec.defaults.height_px)
    if spec.tiling.default == "off":
        return peak.untiled_mib(spec.peak, size)
    return peak.tiled_mib(spec.peak, size, spec.tiling.tile_px)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
