"""What the route takes and answers that cuts out at once, for /openapi.json."""

from collections.abc import Mapping
from types import MappingProxyType

from edge.cutouts.body import RemovalAnswer, RemovalBody
from edge.cutouts.endpoint import PATH
from edge.cutouts.request import FILES
from edge.documenting import Described, Operation, posted, said
from edge.pictures.described import as_form

TAG = ("cutouts", "Subjects cut out of pictures.")
_PICTURES = ("image/webp", "image/png", "image/jpeg")


def _removal() -> Operation:
    done = said(RemovalAnswer, "The picture itself, or JSON where several were asked for.")
    file = {"schema": {"type": "string", "format": "binary"}}
    done["content"] |= dict.fromkeys(_PICTURES, file)
    summary = "Cut the subject out of a picture"
    told = posted("remove_background", summary, TAG[0], RemovalBody, done)
    return as_form(told, FILES, ())


CUTOUTS: Mapping[str, Described] = MappingProxyType(
    {PATH: Described(_removal, (RemovalBody, RemovalAnswer))}
)
"""By path."""
