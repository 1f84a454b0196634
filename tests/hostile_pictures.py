"""Five hundred broken, odd and hostile pictures, the same ones every time.

Each says what must come of it: `odd` files must be decoded, `hostile` ones refused with a sentence,
`either` may go one way or the other; none may crash, hang or fill the memory. No file is larger
than two mebibytes, so that all of them can be sent through the whole house.
"""

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from PIL import Image

from tests import picture_forge as forge
from tests.odd_pictures import odd_pictures
from tests.picture_forge import chunk, in_mode, pattern, saved

COUNT = 500

_PAM = b"P7\nWIDTH 48\nHEIGHT 32\nDEPTH 3\nMAXVAL 255\nENDHDR\n"


class Verdict(Enum):
    """What must come of a file."""

    ODD = "odd"
    HOSTILE = "hostile"
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Case:
    """One file."""

    name: str
    data: bytes
    verdict: Verdict


def all_cases() -> list[Case]:
    """Exactly `COUNT`: what was thought of, then sound files with bytes changed at random."""
    odd = (Case(f"odd/{name}", data, Verdict.ODD) for name, data in odd_pictures().items())
    cases = [*odd, *_hostile(), *_either(), *_cut()]
    cases += list(_flipped(COUNT - len(cases)))
    return cases


def _sound() -> dict[str, bytes]:
    """One file of each kind, as a writer writes it."""
    photo = pattern()
    return {
        "png": saved(photo, "PNG"),
        "png-alpha": saved(in_mode("RGBA"), "PNG"),
        "jpeg": saved(photo, "JPEG"),
        "jpeg-progressive": saved(photo, "JPEG", progressive=True),
        "webp": saved(photo, "WEBP"),
        "webp-lossless": saved(in_mode("RGBA"), "WEBP", lossless=True),
        "gif": saved(in_mode("P"), "GIF"),
        "bmp": saved(photo, "BMP"),
        "tiff": saved(photo, "TIFF"),
        "tiff-lzw": saved(photo, "TIFF", compression="tiff_lzw"),
        "pam": saved(photo, "PPM").replace(b"P6\n48 32\n255\n", _PAM),
        "ppm": saved(photo, "PPM"),
    }


def _cut() -> Iterator[Case]:
    """Ended at every kind of place; a reader may be content without the last bytes."""
    for name, data in _sound().items():
        places = {2, 4, 8, 12, 20, 33, len(data) // 4, len(data) // 2, len(data) * 9 // 10}
        for place in sorted(places):
            verdict = Verdict.HOSTILE if place <= 12 else Verdict.EITHER
            yield Case(f"cut/{name}-at-{place}", data[:place], verdict)


def _flipped(count: int) -> Iterator[Case]:
    chance = random.Random(20261130)
    sound = list(_sound().items())
    for number in range(count):
        name, data = sound[number % len(sound)]
        changed = bytearray(data)
        reach = len(changed) if number % 2 else min(len(changed), 200)
        for _ in range(chance.choice((1, 3, 20))):
            changed[chance.randrange(2, reach)] = chance.randrange(256)
        yield Case(f"flipped/{name}-{number}", bytes(changed), Verdict.EITHER)


# Hostile: no picture, or one that must not be read.


def _hostile() -> Iterator[Case]:
    for name, data in (
        *_no_pictures().items(),
        *_wrong_sizes().items(),
        *_wasters().items(),
        *_unreadable().items(),
    ):
        yield Case(f"hostile/{name}", data, Verdict.HOSTILE)


def _no_pictures() -> dict[str, bytes]:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    other = pattern()
    return {
        "empty": b"",
        "one-byte": b"\x89",
        "zeros": bytes(4096),
        "all-ones": b"\xff" * 4096,
        "blanks": b" \n" * 999,
        "text": b"a picture of a cat",
        "svg": svg,
        "svg-with-declaration": b'<?xml version="1.0"?>\n' + svg,
        "svg-behind-blanks": b"\n\n   " + svg,
        "svg-behind-mark": b"\xef\xbb\xbf" + svg,
        "svg-utf-16": svg.decode().encode("utf-16"),
        "svg-entities": b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "&b;&b;">]><svg>&a;</svg>',
        "svg-compressed": b"\x1f\x8b\x08" + bytes(20),
        "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "xml": b"<a><b/></a>",
        "json": b'{"error": "not found"}',
        "pdf": b"%PDF-1.7\n1 0 obj<<>>endobj",
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "zip": b"PK\x03\x04" + bytes(50),
        "elf": b"\x7fELF" + bytes(60),
        "mp4": b"\0\0\0\x20ftypisom" + bytes(40),
        "avif": saved(other, "AVIF"),
        "heic": b"\0\0\0\x18ftypheic" + bytes(40),
        "jxl": b"\xff\x0a" + bytes(40),
        "jxl-container": b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(40),
        "jpeg-2000": saved(other, "JPEG2000"),
        "ico": saved(other, "ICO"),
        "tga": saved(other, "TGA"),
        "pcx": saved(other, "PCX"),
        "sgi": saved(other, "SGI"),
        "dds": saved(other, "DDS"),
        "eps": saved(other, "EPS"),
        "xbm": saved(in_mode("1"), "XBM"),
        "icns": saved(other, "ICNS"),
        "psd": b"8BPS\0\1" + bytes(40),
        "qoi": b"qoif" + bytes(40),
        "wmf": b"\xd7\xcd\xc6\x9a" + bytes(40),
        "fits": b"SIMPLE  =                    T",
        "webm": b"\x1aE\xdf\xa3" + bytes(40),
        "base64": b"iVBORw0KGgoAAAANSUhEUg",
        "base64-jpeg": b"/9j/4AAQSkZJRgABAQ",
        "data-url": b"data:image/png;base64,iVBORw0KGgo=",
        "address": b"https://example.com/cat.png",
        "local-file": b"file:///etc/passwd",
        "pnm-as-text": b"P3 1 1 255 1 2 3",
        "pgm-as-text": b"P2 1 1 255 1",
        "riff-wave": b"RIFF\x24\0\0\0WAVEfmt " + bytes(20),
        "png-signature-alone": forge.PNG_SIGNATURE,
        "png-line-ends-changed": saved(other, "PNG").replace(b"\r\n", b"\n", 1),
        "random": random.Random(7).randbytes(1 << 20),
        "mng": b"\x8aMNG\r\n\x1a\n" + bytes(40),
    }


def _wrong_sizes() -> dict[str, bytes]:
    cases: dict[str, bytes] = {}
    for width, height in ((65_535, 65_535), (30_000, 30_000), (16_385, 1), (1, 65_535)):
        said = f"{width}x{height}"
        cases[f"png-{said}"] = forge.png(forge.ihdr(width, height), chunk(b"IDAT", b"?"))
        cases[f"jpeg-{said}"] = forge.jpeg_of_size(width, height)
        cases[f"webp-{said}"] = forge.webp_canvas(width, height)
        cases[f"gif-{said}"] = forge.gif_of_size(width, height)
        cases[f"bmp-{said}"] = forge.bmp(width, height, 24, b"?")
        cases[f"tiff-{said}"] = forge.gray_tiff(width, height)
        cases[f"ppm-{said}"] = f"P6 {width} {height} 255\n".encode()
        cases[f"pam-{said}"] = (
            f"P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH 4\nMAXVAL 255\nENDHDR\n".encode()
        )
    cases["webp-lossless-16384x16384"] = forge.riff((b"VP8L", b"\x2f" + b"\xff" * 40))
    cases["webp-lossy-16383x16383"] = forge.riff(
        (b"VP8 ", b"\x10\0\0\x9d\x01\x2a\xff\x3f\xff\x3f" + bytes(40))
    )
    cases["png-4gx4g"] = forge.png(forge.ihdr(2**32 - 1, 2**32 - 1), chunk(b"IDAT", b"?"))
    cases["bmp-2gx2g"] = forge.bmp(2**31 - 1, 2**31 - 1, 1, b"?")
    cases["bmp-negative-width"] = forge.bmp(-9, 9, 24, bytes(999))
    cases["tiff-4gx4g"] = forge.gray_tiff(2**32 - 1, 2**32 - 1)
    cases["ppm-long-number"] = b"P6 " + b"9" * 5000 + b" 1 255\n"
    cases["pam-negative"] = b"P7\nWIDTH -1\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nENDHDR\n???"
    for kind, of_size in (
        ("png", lambda w, h: forge.png(forge.ihdr(w, h), chunk(b"IDAT", zlib.compress(b"")))),
        ("jpeg", forge.jpeg_of_size),
        ("bmp", lambda w, h: forge.bmp(w, h, 24, bytes(99))),
        ("tiff", forge.gray_tiff),
        ("ppm", lambda w, h: f"P6 {w} {h} 255\n".encode()),
    ):
        cases[f"{kind}-0xn"] = of_size(0, 9)
        cases[f"{kind}-nx0"] = of_size(9, 0)
        cases[f"{kind}-0x0"] = of_size(0, 0)
    return cases


def _wasters() -> dict[str, bytes]:
    """Small, and made to keep a reader busy."""
    remark = forge.segment(0xFE, b"")
    return {
        "jpeg-remarks-without-end": forge.jpeg_with(*[remark] * 100_000),
        "gif-remarks-without-end": _gif_remarks(400_000),
        "jpeg-scans-5000": forge.many_scans(5000),
        "png-chunks-without-end": forge.small_png(*[chunk(b"tEXt", b"")] * 150_000),
        "tiff-strips-400000": forge.gray_tiff(16, 16, t273=(4, 400_000, 400)) + bytes(1_600_000),
        "tiff-tile-of-4-gigapixels": forge.gray_tiff(
            16, 16, t322=(4, 1, 65_535), t323=(4, 1, 65_535), t324=(4, 1, 8), t325=(4, 1, 9)
        ),
        "ppm-remarks-without-end": b"P6\n" + b"# remark\n" * 200_000 + b"1 1 255\n???",
        "pam-lines-without-end": b"P7\n" + b"# remark\n" * 200_000 + b"ENDHDR\n???",
    }


def _unreadable() -> dict[str, bytes]:
    """Nothing wrong but that nobody can say what its colours are."""
    wide = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    return {
        "tiff-float": saved(Image.fromarray(wide), "TIFF"),
        "tiff-32-bits": saved(Image.fromarray((wide * 99_999).astype(np.int32)), "TIFF"),
        "tiff-lab": saved(Image.new("LAB", (8, 8)), "TIFF"),
        "tiff-depth-7": forge.gray_tiff(16, 16, t258=(3, 1, 7)),
        "tiff-packing-unknown": forge.gray_tiff(16, 16, t259=(3, 1, 60_000)),
        "png-depth-3": forge.raw_png(3, 0, 1),
        "png-type-5": forge.raw_png(8, 5, 1),
        "png-without-pixels": forge.png(forge.ihdr(9, 9)),
        "png-without-header": forge.png(chunk(b"IDAT", zlib.compress(bytes(99)))),
        "png-pixels-not-deflated": forge.png(forge.ihdr(9, 9), chunk(b"IDAT", b"?" * 99)),
        "gif-without-frames": saved(in_mode("P"), "GIF")[:13] + b"\x3b",
        "webp-canvas-smaller-than-its-picture": forge.webp_canvas(4, 4),
        "tiff-old-jpeg": forge.gray_tiff(16, 16, t259=(3, 1, 6)),
        "webp-without-frames": forge.riff((b"VP8X", bytes(10))),
        "webp-of-another-kind": forge.riff((b"ABCD", bytes(10))),
        "pam-depth-5": b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 5\nMAXVAL 255\nENDHDR\n?????",
        "pam-without-width": b"P7\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nENDHDR\n???",
        "pgm-white-is-0": b"P5 1 1 0\n?",
        "pgm-white-is-70000": b"P5 1 1 70000\n??",
    }


# Either: a reader may see a picture in it or not.


def _either() -> Iterator[Case]:
    long = forge.deflate_bomb(2000)
    flat = forge.bmp(64, 64, 8, b"\x40\x07" * 64 + b"\0\1", packing=1)
    cases = {
        "png-pixel-bomb": forge.png(forge.ihdr(1, 1), chunk(b"IDAT", long)),
        "png-pixel-bomb-1024": forge.png(forge.ihdr(1024, 1024), chunk(b"IDAT", long)),
        "png-two-headers": forge.small_png(forge.ihdr(65_535, 65_535)),
        "png-too-few-rows": forge.png(forge.ihdr(9, 9), chunk(b"IDAT", zlib.compress(bytes(28)))),
        "png-palette-missing": forge.raw_png(8, 3, 1),
        "png-end-missing": saved(pattern(), "PNG")[:-12],
        "png-sum-wrong": saved(pattern(), "PNG")[:29] + b"????" + saved(pattern(), "PNG")[33:],
        "jpeg-end-missing": saved(pattern(), "JPEG")[:-2],
        "jpeg-two-starts": b"\xff\xd8" + saved(pattern(), "JPEG"),
        "jpeg-size-16000x200": forge.jpeg_of_size(16_000, 200),
        "jpeg-size-47x31": forge.jpeg_of_size(47, 31),
        "gif-frame-beyond-screen": _gif_beyond(),
        "bmp-run-lengths": flat,
        "bmp-run-lengths-jump": forge.bmp(1000, 1000, 8, b"\0\2\xff\xff" * 9999, packing=1),
        "tiff-entries-65535": struct.pack("<2sHIH", b"II", 42, 8, 65_535) + bytes(65_535 * 12),
        "tiff-overlapping": _tiff_overlapping(),
        "tiff-strips-missing": forge.gray_tiff(16, 16, t273=(4, 1, 1 << 30)),
        "tiff-starts-at-itself": b"II*\0\0\0\0\0" + bytes(99),
        "tiff-size-in-floats": forge.gray_tiff(16, 16, t256=(11, 1, 0x41800000)),
        "tiff-samples-200": forge.gray_tiff(16, 16, t277=(3, 1, 200)),
        "webp-size-of-riff-wrong": b"RIFF\xff\xff\xff\xff" + saved(pattern(), "WEBP")[8:],
    }
    for name, data in cases.items():
        yield Case(f"either/{name}", data, Verdict.EITHER)


def _gif_remarks(pieces: int) -> bytes:
    data = saved(in_mode("P"), "GIF")
    at = data.index(b"\x2c\0\0\0\0")
    return data[:at] + b"\x21\xfe" + b"\x01?" * pieces + b"\0" + data[at:]


def _gif_beyond() -> bytes:
    data = bytearray(saved(in_mode("P"), "GIF"))
    at = data.index(b"\x2c\0\0\0\0") + 1
    data[at : at + 4] = struct.pack("<HH", 1000, 1000)
    return bytes(data)


def _tiff_overlapping() -> bytes:
    block = 500_000
    more = {f"t{40_000 + i}": (7, block, 0) for i in range(9000)}
    return forge.gray_tiff(16, 16, **more) + bytes(block)
