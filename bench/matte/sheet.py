"""The contact sheet: truth, theirs and ours side by side on a coloured ground, edges enlarged."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from bench.matte.pictures import Bytes, composite
from bench.matte.solvers import OURS, THEIRS, solved

_COMPOSITES = (0, 1, 2, 9, 16, 23, 24)
_SIZE = 512
_TILE = 256
_CROP = 64
_GROUND = np.array([30, 170, 90], np.float32) / np.float32(255)
_HEADINGS = (
    "picture", "truth", "pymatting", "cohabit", "truth, edge", "pymatting, edge", "cohabit, edge",
    "truth, F alone", "pymatting, F alone", "cohabit, F alone",
)  # fmt: skip
_TOP = 24


def draw_sheet(path: Path) -> None:
    """Writes the PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [_row(number) for number in _COMPOSITES]
    sheet = Image.new("RGB", (_TILE * len(_HEADINGS), _TOP + _TILE * len(rows)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for column, heading in enumerate(_HEADINGS):
        pen.text((column * _TILE + 6, 4), heading, fill="black", font=font)
    for y, tiles in enumerate(rows):
        for x, tile in enumerate(tiles):
            sheet.paste(tile, (x * _TILE, _TOP + y * _TILE))
    sheet.save(path)


def _row(number: int) -> list[Image.Image]:
    picture = composite(number, _SIZE)
    truth = picture.foreground.astype(np.float32) / np.float32(255)
    colours: list[NDArray[np.float32]] = [
        truth,
        solved(THEIRS, picture)[1],
        solved(OURS, picture)[1],
    ]
    alpha = (picture.alpha.astype(np.float32) / np.float32(255))[..., None]
    y, x = _busiest(picture.alpha)
    crop = (slice(y, y + _CROP), slice(x, x + _CROP))
    laid = [alpha * each + (1 - alpha) * _GROUND for each in colours]
    alone = [np.where(alpha > 0, each, _GROUND) for each in colours]
    whole = [picture.image.astype(np.float32) / np.float32(255), *laid]
    return [_tile(each) for each in [*whole, *(each[crop] for each in laid + alone)]]


def _busiest(alpha: Bytes) -> tuple[int, int]:
    """The corner of the crop with the most pixels that are neither foreground nor background."""
    between = (alpha > 0) & (alpha < 255)
    cells = between.reshape(_SIZE // _CROP, _CROP, _SIZE // _CROP, _CROP).sum((1, 3))
    row, column = divmod(int(cells.argmax()), _SIZE // _CROP)
    return row * _CROP, column * _CROP


def _tile(colours: NDArray[np.float32]) -> Image.Image:
    pixels = np.rint(np.clip(colours, 0, 1) * 255).astype(np.uint8)
    enlarged = pixels.shape[0] < _TILE
    way = Image.Resampling.NEAREST if enlarged else Image.Resampling.BOX
    return Image.fromarray(pixels).resize((_TILE, _TILE), way)
