"""What is done with pictures before and after a network: bytes and values in, files out. Blocks.

A picture that has alpha is shown to the network as a viewer would show it, on white; its colours
are solved for in that same picture, and what was transparent stays so.
"""

from dataclasses import dataclass

import numpy as np

from chassis.errors import Fault, Reason
from imaging.compose import over
from imaging.decode import decode, decode_gray
from imaging.encode import check_side, encode
from imaging.scale import cover
from imaging.values import Bounds, Encoded, Encoding, Picture, Pixels
from services.matte.solving import Solved, estimate
from services.matte.values import (
    Composed,
    Composition,
    EdgeColor,
    Estimated,
    EstimatedBackdrop,
    Estimation,
    PictureBackdrop,
    PlainBackdrop,
    Removal,
    Removed,
)

_MESSAGE_MIB = 96
MOST_ANSWER_BYTES = (_MESSAGE_MIB << 20) - (64 << 10)
"""Of all pictures of an answer: a message, less what frames them."""
_WHITE = (255, 255, 255)

Ground = Pixels | tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """A picture that was opened for a removal."""

    picture: Picture
    """As it came; its alpha is None where it is opaque everywhere."""
    flat: Pixels
    """What the network sees."""
    ground: Ground | None
    """What is put behind; None: nothing, or what is solved for."""


def opened(removal: Removal, bounds: Bounds) -> Source:
    """Raises Fault INVALID_IMAGE, IMAGE_TOO_LARGE, PAYLOAD_TOO_LARGE, and INVALID_REQUEST for what
    could not be written in the end.
    """
    picture = _own(decode(removal.image, bounds, "image"))
    check_side(max(picture.width_px, picture.height_px), removal.encoding)
    ground = None
    if isinstance(removal.backdrop, PlainBackdrop | PictureBackdrop):
        ground = _ground(removal.backdrop, bounds, picture)
    return Source(picture, _flat(picture), ground)


def wants_matte(removal: Removal, source: Source) -> bool:
    """Whether the network has anything to say."""
    return source.picture.alpha is None or not removal.keep_alpha


def wants_colors(removal: Removal, source: Source) -> bool:
    """Whether foreground or background are to be solved for."""
    if removal.matte_only:
        return False
    if removal.return_background or isinstance(removal.backdrop, EstimatedBackdrop):
        return True
    return removal.edge_color is EdgeColor.ESTIMATED and wants_matte(removal, source)


def with_own_alpha(alpha: Pixels, picture: Picture) -> Pixels:
    """The network's matte; what was transparent before stays so."""
    if picture.alpha is None:
        return alpha
    product = alpha.astype(np.uint16) * picture.alpha
    return ((product + 127) // 255).astype(np.uint8)


def solved(rgb: Pixels, alpha: Pixels) -> Solved:
    """Foreground and background, on the host."""
    return estimate(rgb, alpha)


def answered(removal: Removal, source: Source, alpha: Pixels, colors: Solved | None) -> Removed:
    """The pictures that are wanted. Raises Fault PAYLOAD_TOO_LARGE, INVALID_REQUEST for a picture
    that its format cannot hold.
    """
    sheet = _Sheet(removal.encoding)
    image = background = matte = None
    if not removal.matte_only:
        image = sheet.take(_cutout(removal, source, alpha, colors), "image")
        if removal.return_background and colors is not None:
            background = sheet.take(Picture(colors.background), "background")
    if removal.matte_only or removal.return_matte:
        matte = sheet.take(alpha, "matte")
    height_px, width_px = alpha.shape
    return Removed(width_px, height_px, float(alpha.mean()) / 255.0, image, background, matte)


def opened_with_matte(asked: Estimation, bounds: Bounds) -> tuple[Picture, Pixels]:
    """Raises Fault as `opened`, and SIZE_MISMATCH."""
    picture = _own(decode(asked.image, bounds, "image"))
    return picture, _matte(asked.matte, picture, bounds)


def estimated(asked: Estimation, alpha: Pixels, colors: Solved) -> Estimated:
    """The two pictures, or the first alone. Raises Fault as `answered`."""
    sheet = _Sheet(asked.encoding)
    foreground = Picture(colors.foreground, alpha if asked.cutout else None)
    first = sheet.take(foreground, "foreground")
    if asked.omit_background:
        return Estimated(first)
    return Estimated(first, sheet.take(Picture(colors.background), "background"))


def opened_for_composition(asked: Composition, bounds: Bounds) -> tuple[Picture, Ground]:
    """The cutout, with alpha, and what goes behind it. Raises Fault as `opened`, SIZE_MISMATCH, and
    INVALID_REQUEST for a foreground without any alpha.
    """
    foreground = decode(asked.foreground, bounds, "foreground")
    if asked.matte is not None:
        foreground = Picture(foreground.rgb, _matte(asked.matte, foreground, bounds))
    if foreground.alpha is None:
        raise Fault(
            Reason.INVALID_REQUEST,
            "`foreground` has no alpha; send a cutout, or its matte in `matte`.",
            metadata={"param": "matte"},
        )
    return foreground, _ground(asked.backdrop, bounds, foreground)


def composed(asked: Composition, opened: tuple[Picture, Ground]) -> Composed:
    """The subject on its backdrop. Raises Fault as `answered`."""
    foreground, ground = opened
    picture = _on(foreground, ground)
    image = _Sheet(asked.encoding).take(picture, "image")
    return Composed(image, picture.width_px, picture.height_px)


class _Sheet:
    """The pictures of one answer, written with one encoding, bounded together."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._left_bytes = MOST_ANSWER_BYTES

    def take(self, picture: Picture | Pixels, name: str) -> Encoded:
        """Written. Raises Fault PAYLOAD_TOO_LARGE."""
        done = encode(picture, self._encoding, field="output.format")
        self._left_bytes -= len(done.data)
        if self._left_bytes < 0:
            raise Fault(
                Reason.PAYLOAD_TOO_LARGE,
                f"With `{name}` the answer would exceed {_MESSAGE_MIB} MiB as "
                f"{done.mime_type}; ask for fewer pictures, or for webp or jpeg.",
                metadata={"field": name, "param": "output.format"},
            )
        return done


def _cutout(removal: Removal, source: Source, alpha: Pixels, colors: Solved | None) -> Picture:
    rgb = source.picture.rgb
    if colors is not None and removal.edge_color is EdgeColor.ESTIMATED:
        rgb = colors.foreground
    ground = source.ground
    if isinstance(removal.backdrop, EstimatedBackdrop) and colors is not None:
        ground = colors.background
    cutout = Picture(rgb, alpha)
    return cutout if ground is None else _on(cutout, ground)


def _on(cutout: Picture, ground: Ground) -> Picture:
    if cutout.alpha is None:
        return cutout
    return Picture(over(cutout.rgb, cutout.alpha, ground))


def _own(picture: Picture) -> Picture:
    """A channel of alpha that is opaque everywhere says nothing."""
    if picture.alpha is None or int(picture.alpha.min()) < 255:
        return picture
    return Picture(picture.rgb)


def _flat(picture: Picture) -> Pixels:
    return picture.rgb if picture.alpha is None else over(picture.rgb, picture.alpha, _WHITE)


def _ground(backdrop: PlainBackdrop | PictureBackdrop, bounds: Bounds, under: Picture) -> Ground:
    if isinstance(backdrop, PlainBackdrop):
        return backdrop.rgb
    picture = decode(backdrop.data, bounds, "backdrop.image")
    return _flat(cover(picture, under.width_px, under.height_px))


def _matte(data: bytes, picture: Picture, bounds: Bounds) -> Pixels:
    alpha = decode_gray(data, bounds, "matte")
    if alpha.shape != picture.rgb.shape[:2]:
        raise Fault(
            Reason.SIZE_MISMATCH,
            f"The matte is {alpha.shape[1]}x{alpha.shape[0]} and the picture "
            f"{picture.width_px}x{picture.height_px}; they must be of one size.",
            metadata={"field": "matte", "param": "matte"},
        )
    return alpha
