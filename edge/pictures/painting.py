"""What a request to paint comes to, whatever its route. Values only."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from cohabit.diffusion.v1 import diffusion_pb2 as pb
from edge.pictures.body import QualityName
from edge.pictures.upload import Form, Upload

EventFamily = Literal["image_generation", "image_edit"]
Role = Literal["init_image", "mask", "reference_images"]
"""The field of diffusion.v1.GenerateRequest that a picture goes to."""


@dataclass(frozen=True, slots=True)
class Given:
    """A picture that the request names."""

    value: str | Upload
    param: str
    """The field that names it, as the client wrote it."""
    role: Role


@dataclass(frozen=True, slots=True)
class Painting:
    """A request, understood."""

    model: str
    """As the client named it; empty: it named none."""
    generate: pb.GenerateRequest
    """For the first picture, without those that are given."""
    given: tuple[Given, ...] = ()
    count: int = 1
    stream: bool = False
    partial_images: int = 0
    quality: QualityName = "auto"
    events: EventFamily = "image_generation"
    background_tier: bool = False
    """It runs when nothing else does, whoever asks."""
    only_picture: bool = False
    """The one given picture is looked at by models that edit, and started from by others."""

    def for_model(self, *, edits: bool) -> "Painting":
        """As it is meant for a model that edits by looking at pictures, or for another."""
        if not self.only_picture or not edits:
            return self
        looked_at = tuple(replace(one, role="reference_images") for one in self.given)
        return replace(self, given=looked_at)

    def looks_at(self) -> str:
        """The field of the first picture that is only looked at; empty: there is none."""
        return next((one.param for one in self.given if one.role == "reference_images"), "")

    def brought(self) -> "Painting":
        """With its pictures in `generate`, where they need no second place in memory."""
        return replace(self, given=tuple(replace(one, value="") for one in self.given))

    def client_name(self, param: str) -> str:
        """What the client calls the field that the engine calls `param`."""
        names = self._names()
        return names.get(param) or names.get(param.partition("[")[0], param)

    def _names(self) -> dict[str, str]:
        named = {"width_px": "size", "height_px": "size", "batch": "n", "output": "output_format"}
        references = 0
        for one in self.given:
            if one.role == "reference_images":
                named[f"{one.role}[{references}]"] = one.param
                references += 1
            named.setdefault(one.role, one.param)
        return named


Parse = Callable[[Form], Painting]
"""A route's reading of a form. Raises Fault, its `param` the field at fault."""
