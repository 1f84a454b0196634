"""Composites whose truth is known: two photographs, one matte, and what comes of them.

Photographs are those that come with scikit-image, enlarged or reduced to the size asked for. The
mattes are drawn: hair (a body with strands a pixel or two wide), glass (see-through almost
everywhere), hard (discs, polygons, text). Nothing is left to chance: a number names a composite.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import cos, pi, sin
from pathlib import Path

import numpy as np
import skimage.data
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Bytes = NDArray[np.uint8]

KINDS = ("hair", "glass", "hard")
_FOLDER = Path(skimage.data.__file__).parent
_PHOTOGRAPHS = (
    "astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "motorcycle_left.png",
    "hubble_deep_field.jpg", "retina.jpg", "ihc.png",
)  # fmt: skip
_PAIRS = (
    (0, 1), (1, 2), (2, 4), (3, 0), (4, 3), (5, 2), (6, 4), (7, 1), (2, 0), (0, 5), (4, 7), (1, 3),
)  # fmt: skip
COMPOSITES = len(_PAIRS) * len(KINDS)
_NETWORK_PIXELS = 320
_FINER = 2
"""Mattes are drawn this many times larger and reduced: edges get their fractions."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A picture, its matte and what it is made of. Colours are (H, W, 3), alpha (H, W), bytes."""

    name: str
    kind: str
    image: Bytes
    alpha: Bytes
    foreground: Bytes
    background: Bytes


def composites(size: int, most: int = COMPOSITES) -> Iterator[Composite]:
    """The first `most` of all, `size` pixels square, one at a time: large ones fill memory."""
    for number in range(min(most, COMPOSITES)):
        yield composite(number, size)


def composite(number: int, size: int) -> Composite:
    """The composite of this number: I = alpha F + (1 - alpha) B, rounded to bytes."""
    pair, kind = _PAIRS[number // len(KINDS)], KINDS[number % len(KINDS)]
    foreground, background = (_photograph(which, size) for which in pair)
    alpha = _MATTES[kind](size, np.random.default_rng(number))
    a = alpha[..., None].astype(np.float32) / 255
    image = np.rint(a * foreground + (1 - a) * background).astype(np.uint8)
    over, under = (Path(_PHOTOGRAPHS[which]).stem.partition("_")[0] for which in pair)
    return Composite(f"{over} on {under}", kind, image, alpha, foreground, background)


def with_coarse_matte(exact: Composite) -> Composite:
    """The same picture under a matte as a network would give it: reduced, and enlarged again."""
    matte = Image.fromarray(exact.alpha)
    small = matte.resize((_NETWORK_PIXELS, _NETWORK_PIXELS), Image.Resampling.BOX)
    return replace(exact, alpha=np.asarray(small.resize(matte.size, Image.Resampling.BICUBIC)))


@cache
def _photograph(which: int, size: int) -> Bytes:
    """The middle square of a photograph, (size, size, 3)."""
    with Image.open(_FOLDER / _PHOTOGRAPHS[which]) as opened:
        picture = opened.convert("RGB")
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    return np.asarray(square.resize((size, size), Image.Resampling.LANCZOS))


def _hair(size: int, chance: np.random.Generator) -> Bytes:
    """A soft body, and strands that curl away from it, half a pixel to two pixels wide."""
    canvas, draw = _canvas(size)
    middle = (canvas.width * chance.uniform(0.4, 0.6), canvas.width * chance.uniform(0.45, 0.6))
    radius = canvas.width * chance.uniform(0.17, 0.24)
    draw.ellipse(_around(middle, radius), fill=255)
    canvas = canvas.filter(ImageFilter.GaussianBlur(canvas.width / 160))
    draw = ImageDraw.Draw(canvas)
    for _ in range(500):
        draw.line(
            _strand(middle, radius, chance),
            fill=int(chance.uniform(70, 256)),
            width=int(chance.integers(1, 5)),
        )
    return _reduced(canvas, size)


def _strand(
    middle: tuple[float, float], radius: float, chance: np.random.Generator
) -> list[tuple[float, float]]:
    """Points along one hair, from within the body outwards."""
    angle, bend = chance.uniform(0, 2 * pi), chance.normal(0, 0.9)
    far = radius * chance.uniform(1.2, 2.1)
    points = []
    for along in np.linspace(0, 1, 24):
        reach = radius * 0.8 + (far - radius * 0.8) * along
        turned = angle + bend * along**2 + 0.04 * sin(9 * along)
        points.append((middle[0] + reach * cos(turned), middle[1] + reach * sin(turned)))
    return points


def _glass(size: int, chance: np.random.Generator) -> Bytes:
    """Vessels of varying transparency with a denser rim and bright spots."""
    clouds = Image.fromarray(chance.integers(60, 190, (7, 7), dtype=np.uint8))
    density = clouds.resize((size, size), Image.Resampling.BICUBIC)
    canvas, draw = _canvas(size)
    for _ in range(3):
        at = (canvas.width * chance.uniform(0.25, 0.75), canvas.width * chance.uniform(0.25, 0.75))
        radius = canvas.width * chance.uniform(0.12, 0.28)
        draw.ellipse(_around(at, radius), fill=190, outline=255, width=canvas.width // 150)
        spot = (at[0] - radius / 3, at[1] - radius / 3)
        draw.ellipse(_around(spot, radius / 6), fill=255)
    body = _reduced(canvas.filter(ImageFilter.GaussianBlur(canvas.width / 500)), size)
    clear = np.asarray(density, np.float32) / 190
    full = body.astype(np.float32)
    thin = np.minimum(full, 190) * clear + np.maximum(full - 190, 0) * (255 - 190 * clear) / 65
    return np.rint(np.clip(thin, 0, 255)).astype(np.uint8)


def _hard(size: int, chance: np.random.Generator) -> Bytes:
    """Discs, polygons and letters with edges a pixel wide, and one edge out of focus."""
    canvas, draw = _canvas(size)
    wide = canvas.width
    draw.ellipse(_around((wide * 0.3, wide * chance.uniform(0.3, 0.7)), wide * 0.17), fill=255)
    canvas = canvas.filter(ImageFilter.GaussianBlur(wide * chance.uniform(0.001, 0.006)))
    draw = ImageDraw.Draw(canvas)
    corners = [(float(x), float(y)) for x, y in chance.uniform(0.45, 0.95, (5, 2)) * wide]
    draw.polygon(corners, fill=255)
    for row in range(5):
        font = ImageFont.load_default(wide / (14 + 12 * row))
        place = (wide * chance.uniform(0.02, 0.3), wide * (0.03 + 0.19 * row))
        draw.text(place, "Hamburgefonstiv 0123456789", fill=255, font=font)
    return _reduced(canvas, size)


_MATTES = {"hair": _hair, "glass": _glass, "hard": _hard}


def _canvas(size: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    canvas = Image.new("L", (size * _FINER, size * _FINER))
    return canvas, ImageDraw.Draw(canvas)


def _around(at: tuple[float, float], radius: float) -> tuple[float, float, float, float]:
    return (at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius)


def _reduced(canvas: Image.Image, size: int) -> Bytes:
    return np.asarray(canvas.resize((size, size), Image.Resampling.BOX))
