"""Picture files of the command: their formats by name, and what may be read."""

from enum import StrEnum
from pathlib import Path

from cli.console import Refused, size

_MOST_BYTES = 80 << 20
"""Of all pictures of one request, as the contracts say."""


class Format(StrEnum):
    """Formats that a picture is written in, as the contracts name them."""

    PNG = "PNG"
    WEBP = "WEBP"
    JPEG = "JPEG"


_BY_ENDING = {
    ".png": Format.PNG,
    ".webp": Format.WEBP,
    ".jpg": Format.JPEG,
    ".jpeg": Format.JPEG,
}


def format_of(path: Path) -> Format:
    """The format that a file's name ends in. Raises Refused."""
    found = _BY_ENDING.get(path.suffix.lower())
    if found is None:
        raise Refused(f"{path} names no format; end it in {', '.join(_BY_ENDING)}.")
    return found


def read_picture(path: Path) -> bytes:
    """The bytes of a file; whether they are a picture, the service knows. Raises Refused."""
    try:
        if (found := path.stat().st_size) > _MOST_BYTES:
            raise Refused(f"{path} has {size(found)}; a request takes {size(_MOST_BYTES)}.")
        data = path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}.") from None
    if not data:
        raise Refused(f"{path} is empty; name a picture.")
    return data
