"""The sentences with which a picture is refused: what was seen, and what would be taken."""

from chassis.errors import Fault, Reason
from imaging.values import Bounds

ACCEPTED = "send PNG, JPEG, WebP, GIF, BMP, TIFF, AVIF or binary PNM"


class Unreadable(Exception):
    """What is wrong with the bytes of a picture; its readers raise it, `decode` names the field."""


def invalid(field: str, seen: str) -> Fault:
    """`seen` completes the sentence "`image` …"."""
    return Fault(
        Reason.INVALID_IMAGE,
        f"`{field}` {seen}; {ACCEPTED}.",
        metadata={"field": field, "param": field},
    )


def too_many_bytes(field: str, size_bytes: int, bounds: Bounds) -> Fault:
    """The file alone is over the bound."""
    return Fault(
        Reason.PAYLOAD_TOO_LARGE,
        f"`{field}` has {size_bytes} bytes; at most {bounds.max_bytes} are read. "
        "Send it smaller or compressed more.",
        metadata={"field": field, "param": field, "max_bytes": str(bounds.max_bytes)},
    )


def too_large(field: str, width_px: int, height_px: int, bounds: Bounds) -> Fault:
    """The header declares more pixels than are read; nothing has been decoded."""
    return Fault(
        Reason.IMAGE_TOO_LARGE,
        f"`{field}` is {width_px} x {height_px} pixels; at most {bounds.max_px} pixels and "
        f"{bounds.max_side_px} on a side are read. Send it scaled down.",
        metadata={
            "field": field,
            "param": field,
            "max_px": str(bounds.max_px),
            "max_side_px": str(bounds.max_side_px),
        },
    )


def check_size(field: str, width_px: int, height_px: int, bounds: Bounds) -> None:
    """Before anything of that size is allocated."""
    if width_px < 1 or height_px < 1:
        raise invalid(field, f"is {width_px} x {height_px} pixels, which is no picture")
    if max(width_px, height_px) > bounds.max_side_px or width_px * height_px > bounds.max_px:
        raise too_large(field, width_px, height_px, bounds)
