"""What shall stand behind a subject, read from the fields of a request. Pure."""

import re
from dataclasses import dataclass

from edge.cutouts.fields import CutoutFields
from edge.cutouts.sources import Source, only_source
from edge.errors import bad_field
from edge.pictures.upload import Form

_HEX = re.compile(r"#(?:[0-9a-fA-F]{3}){1,2}")
_WORD = re.compile(r"[A-Za-z]{1,32}")
_URL = re.compile(r"(?:https?:|data:)", re.IGNORECASE)
_MOST_WORD_CHARS = 64
_NONE = "transparent"
_ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class Color:
    """A colour; whether a name is one, the matting service knows."""

    name: str


@dataclass(frozen=True, slots=True)
class Estimated:
    """The background of the picture itself."""


Backdrop = Color | Estimated | Source


def backdrop_of(form: Form, fields: CutoutFields) -> Backdrop | None:
    """What stands behind the subject; None: nothing. Raises Fault."""
    # A file is taken under either name; a text that is `background` may be a colour.
    places = {"background_image": fields.background_image, "background": None}
    picture = only_source(form, places)
    named = _named(fields.background) if fields.background is not None else None
    if picture is not None and fields.background is not None:
        message = "`background` and `background_image` both say what stands behind; send one."
        raise bad_field("background", message)
    return picture or named


def _named(given: str) -> Backdrop | None:
    if _URL.match(given):
        return Source(given, "background")
    word = given[:_MOST_WORD_CHARS].strip().lower()
    if word == _NONE:
        return None
    if word == _ESTIMATED:
        return Estimated()
    if len(given) < _MOST_WORD_CHARS and (_HEX.fullmatch(word) or _WORD.fullmatch(word)):
        return Color(word)
    raise bad_field(
        "background",
        "`background` must be transparent, estimated, #rrggbb, a colour's name or a URL; send the "
        "picture itself as `background_image`.",
    )
