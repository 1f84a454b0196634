"""The fields of pictures from prompts, whoever makes them: at once, or as a job."""

from typing import Annotated, Any

from msgspec import Meta

from edge.errors import bad_field

MOST_SIDE_PX = 16_384
MOST_PROMPT_CHARS = 32 * 1024
MOST_LORAS = 8

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Prompt = Annotated[str, Meta(min_length=1, max_length=MOST_PROMPT_CHARS)]
Negative = Annotated[str, Meta(max_length=MOST_PROMPT_CHARS)]
Side = Annotated[int, Meta(ge=1, le=MOST_SIDE_PX)]
Size = Annotated[
    str,
    Meta(
        pattern=r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$",
        description="`WIDTHxHEIGHT`, in place of `width` and `height`; `auto`: of the picture that "
        "is started from, or the model's.",
    ),
]
Steps = Annotated[int, Meta(ge=1, le=150)]
Guidance = Annotated[float, Meta(ge=0, le=30)]
MOST_SEED = 2**63 - 1
Seed = Annotated[int, Meta(ge=-1, le=MOST_SEED)]
"""-1: as none."""
Scale = Annotated[float, Meta(ge=-4, le=4)]
Share = Annotated[float, Meta(ge=0, le=1)]
Ignored = Annotated[Any, Meta(description="Accepted and ignored.")]
IN_JSON = frozenset({"loras"})
"""Fields that a form tells as a text of JSON."""


def sides_px(size: str | None, width: int | None, height: int | None) -> tuple[int, int]:
    """Width and height; 0 each: as the model has it. Raises Fault."""
    if size is not None and (width, height) != (None, None):
        raise bad_field("size", "Send `size`, or `width` and `height`, not both.")
    if (width is None) != (height is None):
        missing = "height" if height is None else "width"
        raise bad_field(missing, "`width` and `height` go together; send both or neither.")
    if width is not None and height is not None:
        return width, height
    if size in (None, "auto"):
        return 0, 0
    first, _, second = str(size).partition("x")
    return int(first), int(second)
