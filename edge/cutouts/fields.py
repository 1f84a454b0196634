"""The fields that ask for a cutout, whoever makes it: at once, or as a job."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

OutputFormat = Literal["webp", "png", "jpeg"]
MatteName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="The matting network; may be left out where the house has one, or a default.",
    ),
]
PictureText = Annotated[
    str, Meta(min_length=1, description="Base64, a data URL, or an http(s) URL.")
]
BACKGROUND = (
    "What stands behind the subject: `transparent`, `#rrggbb`, `#rgb`, a CSS colour name, "
    "`estimated` (the background of the picture itself, with the subject filled in), or the URL of "
    "a picture, which is scaled to cover."
)


class OutputFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How pictures leave."""

    output_format: OutputFormat | None = None
    """`webp` unless the service is configured otherwise. JPEG has no alpha and needs a ground."""
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    """OpenAI's word for `quality`."""
    quality: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Of WebP and JPEG."""
    lossless: bool = False
    """WebP without loss; `quality` then is effort."""


class CutoutFields(OutputFields, kw_only=True):
    """What becomes of the subject and of what was behind it."""

    background: Annotated[str, Meta(min_length=1, description=BACKGROUND)] | None = None
    background_image: PictureText | None = None
    """A picture to put the subject on."""
    return_background: bool = False
    """The background that was removed, too."""
    return_matte: bool = False
    """The matte, too."""
    keep_alpha: bool = False
    """A picture that has alpha already is taken at its word."""
