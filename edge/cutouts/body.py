"""The bodies of /v1/images/background-removals."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from edge.cutouts.fields import CutoutFields, MatteName, PictureText

Role = Literal["image", "cutout", "matte", "background"]


class RemovalBody(CutoutFields, kw_only=True):
    """A picture to cut the subject out of: exactly one of `image`, `image_url` and `file`."""

    model: MatteName | None = None
    image: PictureText | None = None
    image_url: PictureText | None = None
    """The same under another name."""
    file: PictureText | None = None
    """The same under another name."""
    matte_only: bool = False
    """The matte and nothing else."""
    edge_color: Literal["estimated", "kept"] | None = None
    """Colour of soft edges: the subject's own, solved for (`estimated`), or as photographed."""
    webp_method: Annotated[int, Meta(ge=0, le=6)] | None = None
    """Effort of WebP, from 0 (fast) to 6 (small)."""
    response_format: Literal["binary", "b64_json"] | None = None
    """The picture itself, or JSON. JSON when there are several, the picture otherwise."""
    background_prompt: str | None = None
    """Takes a job: /v1/images/background-removals/jobs."""
    background_strength: float | None = None
    """Takes a job, too."""
    user: Annotated[Any, Meta(description="Accepted and ignored.")] = UNSET


class RemovedPicture(msgspec.Struct):
    """A picture of the answer."""

    role: Role
    """`cutout`: the subject with alpha; `image`: the subject on its backdrop."""
    b64_json: str
    mime_type: str
    width: int
    height: int


class RemovalMetrics(msgspec.Struct):
    """Where the time went, in milliseconds, and where the network ran."""

    queue_wait_ms: int
    engine_wait_ms: float
    decode_ms: float
    network_ms: float
    solve_ms: float
    encode_ms: float
    total_ms: float
    """In the engine, from arrival to the end."""
    device: str


class RemovalAnswer(msgspec.Struct):
    """The pictures that were asked for."""

    created: int
    model: str
    """The key of the network that served."""
    data: list[RemovedPicture]
    coverage: float
    """Share of the picture that is subject, 0 to 1."""
    metrics: RemovalMetrics
