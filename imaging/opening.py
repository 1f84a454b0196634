"""The header of a picture: one reader, chosen by the first bytes, with a budget for what it reads.

`Image.open` is not used: it asks every plugin it knows, and warns by a limit of its own. A reader's
header code is a loop over whatever a file claims to hold; the budget is what ends such loops.

AVIF is not read: its library takes the memory of the coded frame, whatever size the file gives for
the picture, and its own limit (268 million pixels) cannot be set through Pillow.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from types import MappingProxyType

from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from imaging import exif, jpeg, png, tiff, webp
from imaging.refusals import Unreadable, check_size
from imaging.sniff import Kind
from imaging.values import Bounds

_READERS: Mapping[Kind, type[ImageFile.ImageFile]] = MappingProxyType(
    {
        Kind.PNG: PngImagePlugin.PngImageFile,
        Kind.JPEG: JpegImagePlugin.JpegImageFile,
        Kind.WEBP: WebPImagePlugin.WebPImageFile,
        Kind.GIF: GifImagePlugin.GifImageFile,
        Kind.BMP: BmpImagePlugin.BmpImageFile,
        Kind.TIFF: TiffImagePlugin.TiffImageFile,
    }
)

_MOST_READS = 300_000
_LIBRARY = r"PIL\..*"


class _Budgeted(BytesIO):
    """A file that ends a reader which asks too often or for too much."""

    def __init__(self, data: bytes, most_reads: int, most_bytes: int) -> None:
        super().__init__(data)
        self._reads_left = most_reads
        self._bytes_left = most_bytes

    def allow(self, most_reads: int, most_bytes: int) -> None:
        """A fresh budget, for the next phase."""
        self._reads_left, self._bytes_left = most_reads, most_bytes

    def read(self, size: int | None = -1, /) -> bytes:
        """As a file's; raises when the budget is spent, by an error that no reader expects."""
        data = super().read(size)
        self._reads_left -= 1
        self._bytes_left -= len(data)
        if self._reads_left < 0 or self._bytes_left < 0:
            raise Unreadable("makes its reader read without end")
        return data


@dataclass(frozen=True, slots=True)
class Opened:
    """A picture whose header is known and within bounds; its pixels are still a file."""

    image: ImageFile.ImageFile
    turn: int
    """EXIF orientation that the reader does not apply by itself."""
    mend: Callable[[Image.Image], Image.Image]
    """Puts right what the reader is known to get wrong with such a file."""
    source: _Budgeted

    def size_px(self) -> tuple[int, int]:
        """Width and height, upright."""
        width, height = self.image.size
        return (height, width) if exif.swaps_sides(self.turn) else (width, height)

    def load(self) -> Image.Image:
        """The pixels, upright, in the file's own colours."""
        pieces = len(self.image.tile)
        self.source.allow(
            _MOST_READS + 4 * pieces,
            4 * len(self.source.getbuffer()) + (pieces + 1) * ImageFile.SAFEBLOCK,
        )
        self.image.load()
        image = self.mend(self.image)
        turn = exif.TURNS.get(self.turn)
        return image if turn is None else image.transpose(turn)


def _as_is(image: Image.Image) -> Image.Image:
    return image


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What the reader is given, and what was learnt on the way."""

    data: bytes
    exif: bytes | None = None
    """None: ask the reader."""
    mend: Callable[[Image.Image], Image.Image] = _as_is


def open_header(
    data: bytes, kind: Kind, bounds: Bounds, field: str, *, head: bool = False
) -> Opened:
    """Raises Fault for a size out of bounds; whatever the reader raises for a broken file.

    `head`: it will not be loaded, so that nothing of its pixels is copied.
    """
    _keep_quiet()
    prepared = _prepared(data, kind, bounds, field, head=head)
    source = _Budgeted(prepared.data, _MOST_READS, 4 * len(prepared.data) + (1 << 20))
    image = _READERS[kind](source)
    check_size(field, *image.size, bounds)
    exif_data = image.info.get("exif", b"") if prepared.exif is None else prepared.exif
    return Opened(image, exif.orientation(exif_data), prepared.mend, source)


def _prepared(data: bytes, kind: Kind, bounds: Bounds, field: str, *, head: bool) -> _Prepared:
    """Checked and cut down as far as that must be done before a reader sees it."""
    if kind is Kind.PNG:
        chunks = png.sift(data, head=head)
        return _Prepared(
            chunks.data, chunks.exif, partial(png.mend_key, bit_depth=chunks.bit_depth)
        )
    if kind is Kind.JPEG:
        segments = jpeg.sift(data, head=head)
        return _Prepared(segments.data, segments.exif)
    if kind is Kind.WEBP:
        check_size(field, *webp.size_px(data), bounds)
    if kind is Kind.TIFF:
        tiff.check(data, bounds)
        mend = tiff.mend_negative if tiff.is_negative(data) else _as_is
        return _Prepared(data, b"", mend)  # the reader turns it upright itself
    return _Prepared(data)


def _keep_quiet() -> None:
    """The library's remarks on broken metadata are for nobody: such files are read or refused.

    Not `catch_warnings`: that puts back, in one thread, what another has set meanwhile.
    """
    if not any(getattr(rule[3], "pattern", None) == _LIBRARY for rule in warnings.filters):
        warnings.filterwarnings("ignore", module=_LIBRARY)
