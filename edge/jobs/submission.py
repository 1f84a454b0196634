"""A job as it was handed in, understood. Values, and the names that its fields go by."""

from dataclasses import dataclass, field

from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.cutouts.sources import Source

_GENERATED = "cutout.generated.picture."
_NAMES = {
    "cutout.color": "background",
    "cutout.generated.background_strength": "background_strength",
    "output.format": "output_format",
    "output.quality": "quality",
    "count": "n",
}
"""What the job service calls a field → what the client calls it."""


@dataclass(frozen=True, slots=True)
class Given:
    """A picture that came with the request."""

    name: str
    """What the job service calls it."""
    source: Source
    media: common_pb2.Media
    """Where in the spec it goes."""


@dataclass(slots=True)
class Submission:
    """A job, understood; its pictures are not fetched yet, nor unnamed models chosen."""

    spec: pb.JobSpec
    idempotency_key: str
    keep_s: int
    pictures: list[Given] = field(default_factory=list)
    makers: list[pb.Picture] = field(default_factory=list)
    """Pictures to generate, by a model for pictures."""
    backdrops: list[pb.Picture] = field(default_factory=list)
    """Backdrops to generate."""
    cutouts: list[pb.CutoutOptions] = field(default_factory=list)
    """Subjects to cut out."""

    @property
    def matte_param(self) -> str:
        """The field that names the matting network."""
        return "matte_model" if self.makers else "model"

    def client_name(self, param: str) -> str:
        """What the client calls the field that the job service calls `param`."""
        for one in self.pictures:
            if param == one.name:
                return one.source.param
        if param.startswith(_GENERATED):
            return f"background_{param.removeprefix(_GENERATED)}"
        plain = param.removeprefix("picture.").removesuffix("_px")
        if plain == "cutout.model":
            return self.matte_param
        return _NAMES.get(plain, plain)
