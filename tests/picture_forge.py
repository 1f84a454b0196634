"""Files of pictures made by hand: what no writer would write, byte by byte.

What these files are for stands in `hostile_pictures`; here is only how they are put together.
"""

import struct
import zlib
from io import BytesIO

import numpy as np
from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
WIDTH_PX, HEIGHT_PX = 48, 32


def pattern(width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX) -> Image.Image:
    """RGB: two ramps and a checkerboard, so that a shift or a swap of channels shows."""
    across = np.linspace(0, 255, width_px, dtype=np.uint8)
    down = np.linspace(0, 255, height_px, dtype=np.uint8)
    board = (np.add.outer(np.arange(height_px) // 4, np.arange(width_px) // 4) % 2 * 255).astype(
        np.uint8
    )
    red, green = np.meshgrid(across, down)
    return Image.fromarray(np.dstack([red, green, board]))


def in_mode(mode: str, width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX) -> Image.Image:
    """The pattern in another mode; where there is alpha it is the first ramp."""
    image = pattern(width_px, height_px)
    if mode == "I;16":
        return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    if mode in {"RGBA", "LA"}:
        image.putalpha(image.getchannel("R"))
    return image.convert(mode)


def saved(image: Image.Image, name: str, **options: object) -> bytes:
    """As the library writes it."""
    file = BytesIO()
    image.save(file, name, **options)
    return file.getvalue()


# PNG


def chunk(name: bytes, body: bytes = b"") -> bytes:
    """One chunk with its right sum."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def ihdr(width_px: int, height_px: int, depth: int = 8, kind: int = 2, laced: int = 0) -> bytes:
    """The header chunk."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width_px, height_px, depth, kind, 0, 0, laced))


def png(*chunks: bytes) -> bytes:
    """A PNG file of chunks."""
    return PNG_SIGNATURE + b"".join(chunks) + chunk(b"IEND")


def small_png(*before: bytes, after: tuple[bytes, ...] = ()) -> bytes:
    """A sound 48 x 32 PNG with chunks put in before and behind its pixels."""
    rows = np.asarray(pattern())
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    return png(ihdr(WIDTH_PX, HEIGHT_PX), *before, chunk(b"IDAT", zlib.compress(raw)), *after)


def raw_png(depth: int, kind: int, samples: int, *before: bytes) -> bytes:
    """A 16 x 4 PNG of any depth and colour type, its bytes counting up."""
    row_bytes = (16 * samples * depth + 7) // 8
    raw = b"".join(b"\0" + bytes((y * 67 + x) % 256 for x in range(row_bytes)) for y in range(4))
    return png(ihdr(16, 4, depth, kind), *before, chunk(b"IDAT", zlib.compress(raw)))


def deflate_bomb(mebibytes: int) -> bytes:
    """A zlib stream that inflates to that much, made without inflating it here."""
    deflating = zlib.compressobj(9)
    head = deflating.compress(bytes(1 << 20)) + deflating.flush(zlib.Z_FULL_FLUSH)
    again = deflating.compress(bytes(1 << 20)) + deflating.flush(zlib.Z_FULL_FLUSH)
    return head + again * (mebibytes - 1)


def apng(frames: int) -> bytes:
    """An animation of one sound picture and many frames of a pixel."""
    control = struct.pack(">IIIIIHHBB", 0, WIDTH_PX, HEIGHT_PX, 0, 0, 1, 100, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    more = [
        chunk(b"fcTL", struct.pack(">IIIIIHHBB", 2 * i + 1, 1, 1, 0, 0, 1, 100, 0, 0))
        + chunk(b"fdAT", struct.pack(">I", 2 * i + 2) + pixel)
        for i in range(frames)
    ]
    told = chunk(b"acTL", struct.pack(">II", frames + 1, 0)) + chunk(b"fcTL", control)
    return small_png(told, after=tuple(more))


# JPEG


def segment(marker: int, body: bytes) -> bytes:
    """One JPEG segment."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def jpeg_with(*segments: bytes, **options: object) -> bytes:
    """A sound JPEG with segments put in behind its start."""
    data = saved(pattern(), "JPEG", **options)
    return data[:2] + b"".join(segments) + data[2:]


def jpeg_of_size(width_px: int, height_px: int) -> bytes:
    """A JPEG whose header lies about its size."""
    data = bytearray(saved(pattern(), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height_px, width_px)
    return bytes(data)


def many_scans(scans: int, width_px: int = WIDTH_PX, height_px: int = HEIGHT_PX) -> bytes:
    """A progressive JPEG whose last scan is there many times."""
    data = saved(pattern(width_px, height_px), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def exif(orientation: int, order: str = "<") -> bytes:
    """An EXIF block with one entry: how the camera was held."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + head + struct.pack(order + "H", 1) + entry + bytes(4)


def overlapping_exif(entries: int, block_bytes: int) -> bytes:
    """EXIF in which every entry points to the same block: its size, times their number."""
    start = 8 + 2 + 12 * entries + 4
    table = b"".join(
        struct.pack("<HHII", 0x9000 + i, 7, block_bytes, start) for i in range(entries)
    )
    return (
        b"Exif\0\0II" + struct.pack("<HIH", 42, 8, entries) + table + bytes(4) + bytes(block_bytes)
    )


# TIFF


def tiff(entries: dict[int, tuple[int, int, int]], body: bytes = b"", next_at: int = 0) -> bytes:
    """A little-endian TIFF of one directory; entries are (type, count, value) by tag."""
    table = b"".join(struct.pack("<HHII", tag, *entry) for tag, entry in sorted(entries.items()))
    head = struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(entries))
    return head + table + struct.pack("<I", next_at) + body


def gray_tiff(width_px: int, height_px: int, **more: tuple[int, int, int]) -> bytes:
    """An 8-bit grey TIFF in one strip; `more` is written over its entries, as t<tag>."""
    entries = {
        256: (4, 1, width_px),
        257: (4, 1, height_px),
        258: (3, 1, 8),
        259: (3, 1, 1),
        262: (3, 1, 1),
        273: (4, 1, 8),
        277: (3, 1, 1),
        278: (4, 1, height_px),
        279: (4, 1, min(width_px * height_px, 1 << 31)),
    }
    entries.update({int(tag[1:]): entry for tag, entry in more.items()})
    return tiff(entries, bytes(range(256)) * 8)


# WebP, GIF, BMP


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    """A RIFF file of WebP chunks."""
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_canvas(width_px: int, height_px: int) -> bytes:
    """An extended WebP whose canvas lies about its size."""
    sizes = (width_px - 1 & 0xFFFFFF).to_bytes(3, "little") + (height_px - 1 & 0xFFFFFF).to_bytes(
        3, "little"
    )
    inner = saved(pattern(), "WEBP")[12:]
    return riff((b"VP8X", bytes(4) + sizes)) + inner


def gif_of_size(width_px: int, height_px: int) -> bytes:
    """A GIF whose screen and frame lie about their size."""
    data = bytearray(saved(in_mode("P"), "GIF"))
    sizes = struct.pack("<HH", width_px, height_px)
    data[6:10] = sizes
    at = data.index(b"\x2c\0\0\0\0") + 5
    data[at : at + 4] = sizes
    return bytes(data)


def gif_frames(frames: int) -> bytes:
    """A GIF whose last frame is there many times."""
    data = saved(in_mode("P", 8, 8), "GIF")
    start = data.index(b"\x2c\0\0\0\0")
    return data[:start] + data[start:-1] * frames + data[-1:]


def bmp(width_px: int, height_px: int, depth: int, pixels: bytes, packing: int = 0) -> bytes:
    """A BMP with the 40-byte header, and a grey palette where its depth asks for one."""
    step = 255 // ((1 << min(depth, 8)) - 1)
    palette = (
        b"".join(bytes([i * step] * 3 + [0]) for i in range(1 << depth)) if depth <= 8 else b""
    )
    starts_at = 14 + 40 + len(palette)
    header = struct.pack(
        "<IiiHHIIiiII", 40, width_px, height_px, 1, depth, packing, len(pixels), 0, 0, 0, 0
    )
    head = b"BM" + struct.pack("<IHHI", starts_at + len(pixels), 0, 0, starts_at)
    return head + header + palette + pixels
