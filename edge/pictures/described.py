"""What the routes that paint take and answer, for /openapi.json."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from edge.documenting import Described, Operation, posted, said
from edge.pictures import body
from edge.pictures.loras import LoraList
from edge.pictures.response import ImagesAnswer, PaintEvent
from edge.speech import ErrorEnvelope

GENERATIONS_PATH = "/v1/images/generations"
EDITS_PATH = "/v1/images/edits"
BACKGROUNDS_PATH = "/v1/images/backgrounds"
STYLE_PATH = "/v1/images/backgrounds/style"

TAG = ("pictures", "Pictures from prompts, from pictures, and within masks.")
_WHOLE = "The pictures; with `stream: true`, server-sent events."
_FORM = (
    "The fields of the JSON body as text (lists of objects as JSON), and pictures as files; more "
    "than one under a name that ends in `[]`."
)
_FILE = {"type": "string", "format": "binary"}


def as_form(operation: Operation, files: Sequence[str], required: Sequence[str]) -> Operation:
    """An operation that takes its body as a form, too; `files` may come as files."""
    schema: dict[str, Any] = {
        "type": "object",
        "description": _FORM,
        "properties": dict.fromkeys(files, _FILE),
        "required": list(required),
    }
    operation["requestBody"]["content"]["multipart/form-data"] = {"schema": schema}
    return operation


def _painted(
    name: str,
    summary: str,
    kind: type[body.PaintBody],
    files: Sequence[str] = (),
    required: Sequence[str] = ("prompt",),
) -> Described:
    def operation() -> Operation:
        done = said(ImagesAnswer, _WHOLE, streamed=(PaintEvent, ErrorEnvelope))
        told = posted(name, summary, TAG[0], kind, done)
        told["responses"]["403"] = said(ErrorEnvelope, "LoRAs are not named by their path here.")
        return as_form(told, files, required)

    # The schema of another route's answer goes with these: there is none without the other.
    return Described(operation, (kind, ImagesAnswer, PaintEvent, LoraList))


PICTURES: Mapping[str, Described] = MappingProxyType(
    {
        GENERATIONS_PATH: _painted(
            "create_image",
            "Paint pictures",
            body.GenerationBody,
            ("image", "reference_images[]"),
        ),
        EDITS_PATH: _painted(
            "create_image_edit",
            "Edit pictures",
            body.EditBody,
            ("image", "image[]", "mask"),
        ),
        BACKGROUNDS_PATH: _painted(
            "create_background",
            "Paint a backdrop, when nothing else is to be done",
            body.BackgroundBody,
        ),
        STYLE_PATH: _painted(
            "create_background_in_style",
            "Paint a backdrop in the manner of another",
            body.StyleBody,
            ("image",),
        ),
    }
)
"""By path."""
