"""The header of a picture: one reader, chosen by the first bytes, with a budget for what it reads.

`Image.open` is not used: it asks every plugin it knows, and warns by a limit of its own. A reader's
header code is a loop over whatever a file claims to hold; the budget is what ends such loops.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from imaging import exif, jpeg, png, webp
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
        Kind.AVIF: AvifImagePlugin.AvifImageFile,
    }
)

_MOST_READS = 200_000
_LIBRARY = r"PIL\..*"
_TILE_WIDTH, _TILE_LENGTH = 322, 323


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
        """As a file's; OSError when the budget is spent."""
        data = super().read(size)
        self._reads_left -= 1
        self._bytes_left -= len(data)
        if self._reads_left < 0 or self._bytes_left < 0:
            raise OSError("the file makes its reader read without end")
        return data


@dataclass(frozen=True, slots=True)
class Opened:
    """A picture whose header is known and within bounds; its pixels are still a file."""

    kind: Kind
    image: ImageFile.ImageFile
    turn: int
    """EXIF orientation that the reader does not apply by itself."""
    bit_depth: int
    """Of a PNG; 8 for the others."""
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
        turn = exif.TURNS.get(self.turn)
        return self.image if turn is None else self.image.transpose(turn)


def open_header(data: bytes, kind: Kind, bounds: Bounds, field: str) -> Opened:
    """Raises Fault for a size out of bounds; whatever the reader raises for a broken file."""
    _keep_quiet()
    exif_data, bit_depth = b"", 8
    if kind is Kind.PNG:
        sifted = png.sift(data)
        data, exif_data, bit_depth = sifted.data, sifted.exif, sifted.bit_depth
    elif kind is Kind.JPEG:
        segments = jpeg.sift(data)
        data, exif_data = segments.data, segments.exif
    elif kind is Kind.WEBP:
        check_size(field, *webp.size_px(data), bounds)
    source = _Budgeted(data, _MOST_READS, 4 * len(data) + (1 << 20))
    image = _READERS[kind](source)
    check_size(field, *image.size, bounds)
    _check_tile(image, bounds)
    exif_data = exif_data or image.info.get("exif", b"")
    turn = exif.UPRIGHT if kind is Kind.TIFF else exif.orientation(exif_data)
    return Opened(kind, image, turn, bit_depth, source)


def _check_tile(image: ImageFile.ImageFile, bounds: Bounds) -> None:
    """The tile of a TIFF file is taken whole, however small the picture."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return
    width, length = image.tag_v2.get(_TILE_WIDTH, 1), image.tag_v2.get(_TILE_LENGTH, 1)
    if not (isinstance(width, int) and isinstance(length, int)):
        raise Unreadable("is TIFF whose tiles have no size")
    if width * length > bounds.max_px:
        raise Unreadable(f"is TIFF with a tile of {width} x {length} pixels")


def _keep_quiet() -> None:
    """The library's remarks on broken metadata are for nobody: such files are read or refused.

    Not `catch_warnings`: that puts back, in one thread, what another has set meanwhile.
    """
    if not any(getattr(rule[3], "pattern", None) == _LIBRARY for rule in warnings.filters):
        warnings.filterwarnings("ignore", module=_LIBRARY)
