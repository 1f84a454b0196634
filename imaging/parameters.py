"""How a picture was made, written where people look for it.

PNG: a text chunk `parameters`. JPEG and WebP: EXIF's UserComment. The text is the one that the
web interfaces for diffusion models write and read back: prompt, negative prompt, one line of
settings.
"""

import json
from collections.abc import Mapping

from PIL import Image, PngImagePlugin

KEYWORD = "parameters"
"""Under which the text stands in a PNG, and the one that EXIF can hold."""

_MOST_CHARACTERS = 30_000
"""A JPEG segment holds 64 KiB, and a character takes two bytes of it."""
_EXIF_IFD, _USER_COMMENT = 0x8769, 0x9286
_UNICODE = b"UNICODE\0"


def parameters_text(prompt: str, negative_prompt: str, settings: Mapping[str, str]) -> str:
    """Prompt, `Negative prompt: …` if there is one, `Steps: 20, Sampler: Euler a, …`."""
    lines = [prompt]
    if negative_prompt:
        lines.append(f"Negative prompt: {negative_prompt}")
    if settings:
        lines.append(", ".join(f"{name}: {_quoted(value)}" for name, value in settings.items()))
    return "\n".join(lines)


def _quoted(value: str) -> str:
    """Quoted as JSON where it would be read as several."""
    ambiguous = any(mark in value for mark in ",:\n")
    return json.dumps(value, ensure_ascii=False) if ambiguous else value


def text_chunks(parameters: Mapping[str, str]) -> PngImagePlugin.PngInfo:
    """For a PNG: Latin-1 where that suffices, else UTF-8 (tEXt, iTXt)."""
    chunks = PngImagePlugin.PngInfo()
    for keyword, text in parameters.items():
        chunks.add_text(keyword, _fit(text))
    return chunks


def user_comment(parameters: Mapping[str, str]) -> bytes:
    """For JPEG and WebP: EXIF with the text under `KEYWORD`; empty when there is none."""
    text = parameters.get(KEYWORD)
    if not text:
        return b""
    exif = Image.Exif()
    exif.get_ifd(_EXIF_IFD)[_USER_COMMENT] = _UNICODE + _fit(text).encode("utf-16-be", "replace")
    return exif.tobytes()


def _fit(text: str) -> str:
    return text.replace("\0", "")[:_MOST_CHARACTERS]
