"""Colours as people write them."""

import re

from PIL import ImageColor

from chassis.errors import Fault, Reason

_HEX = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})")


def parse_color(text: str, field: str) -> tuple[int, int, int]:
    """#rgb, #rrggbb or a name of CSS, in any case; Fault invalid_request for all else."""
    word = text.strip().lower()
    if not _HEX.fullmatch(word) and word not in ImageColor.colormap:
        raise Fault(
            Reason.INVALID_REQUEST,
            f"`{field}` is not a colour: {text[:40]!r}. Write #rrggbb, #rgb or a CSS colour name "
            "such as white; a colour has no alpha here.",
            metadata={"param": field},
        )
    red, green, blue = ImageColor.getrgb(word)[:3]
    return red, green, blue
