"""Pictures that are unusual, and pictures all the same: each of these must be decoded."""

import struct
import zlib

import numpy as np
from PIL import ImageCms

from tests import picture_forge as forge
from tests.picture_forge import chunk, in_mode, pattern, saved


def odd_pictures() -> dict[str, bytes]:
    """By name."""
    return (
        _odd_shapes()
        | _odd_pngs()
        | _odd_jpegs()
        | _odd_tiffs()
        | _odd_others()
        | _turned()
        | _polyglots()
    )


def _odd_shapes() -> dict[str, bytes]:
    kinds = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
    shapes = {"1x1": (1, 1), "1xN": (1, 700), "Nx1": (700, 1), "3x5": (3, 5)}
    return {
        f"{kind.lower()}-{shape}": saved(pattern(*size), kind)
        for kind in kinds
        for shape, size in shapes.items()
    }


def _odd_pngs() -> dict[str, bytes]:
    palette = chunk(b"PLTE", bytes(range(6)))
    long = forge.deflate_bomb(2000)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    profile = profile[:24] + bytes(12) + profile[36:]  # the date of its making
    cases = {
        f"png-depth-{depth}-type-{kind}": forge.raw_png(depth, kind, samples, *before)
        for depth, kind, samples, before in (
            (1, 0, 1, ()),
            (2, 0, 1, ()),
            (4, 0, 1, ()),
            (8, 0, 1, ()),
            (16, 0, 1, ()),
            (16, 2, 3, ()),
            (8, 4, 2, ()),
            (16, 4, 2, ()),
            (8, 6, 4, ()),
            (16, 6, 4, ()),
            (1, 3, 1, (palette,)),
            (2, 3, 1, (palette,)),
            (4, 3, 1, (palette,)),
            (8, 3, 1, (palette,)),
        )
    }
    for depth in (1, 2, 4, 8, 16):
        cases[f"png-grey-key-{depth}"] = forge.raw_png(depth, 0, 1, chunk(b"tRNS", b"\0\1"))
    cases["png-rgb-key"] = forge.raw_png(8, 2, 3, chunk(b"tRNS", b"\0\0\0\1\0\2"))
    cases["png-rgb-key-16"] = forge.raw_png(16, 2, 3, chunk(b"tRNS", b"\0\1\2\3\4\5"))
    cases["png-palette-alpha"] = forge.raw_png(8, 3, 1, palette, chunk(b"tRNS", b"\0\x80"))
    cases["png-palette-alpha-too-long"] = forge.raw_png(8, 3, 1, palette, chunk(b"tRNS", bytes(99)))
    cases["png-palette-out-of-range"] = forge.raw_png(8, 3, 1, chunk(b"PLTE", b"abc"))
    cases["png-interlaced"] = forge.png(
        forge.ihdr(1, 1, laced=1), chunk(b"IDAT", zlib.compress(b"\0abc"))
    )
    cases["png-text-bomb"] = forge.small_png(chunk(b"zTXt", b"k\0\0" + long))
    cases["png-text-bomb-utf8"] = forge.small_png(chunk(b"iTXt", b"k\0\1\0\0\0" + long))
    cases["png-text-behind"] = forge.small_png(after=(chunk(b"zTXt", b"k\0\0" + long),))
    cases["png-text-of-a-mebibyte"] = forge.small_png(chunk(b"tEXt", b"k\0" + b"x" * (1 << 20)))
    cases["png-text-20000-times"] = forge.small_png(*[chunk(b"tEXt", b"k\0v")] * 20_000)
    cases["png-profile-bomb"] = forge.small_png(chunk(b"iCCP", b"p\0\0" + long))
    cases["png-profile-garbage"] = forge.small_png(chunk(b"iCCP", b"p\0\0" + zlib.compress(b"?")))
    cases["png-profile-not-deflated"] = forge.small_png(chunk(b"iCCP", b"p\0\0 ?"))
    cases["png-profile-cut"] = forge.small_png(
        chunk(b"iCCP", b"p\0\0" + zlib.compress(profile[: len(profile) // 2]))
    )
    cases["png-profile"] = forge.small_png(chunk(b"iCCP", b"p\0\0" + zlib.compress(profile)))
    cases["png-profile-bad-sum"] = forge.small_png(chunk(b"iCCP", b"p\0\0")[:-4] + b"????")
    cases["png-text-bad-sum"] = forge.small_png(chunk(b"tEXt", b"k\0v")[:-4] + b"????")
    cases["png-exif-overlapping"] = forge.small_png(
        chunk(b"eXIf", forge.overlapping_exif(9000, 500_000)[6:])
    )
    cases["png-frames-5000"] = forge.apng(5000)
    cases["png-frames-announced"] = forge.small_png(chunk(b"acTL", b"\xff" * 8))
    cases["png-frames-malformed"] = forge.small_png(chunk(b"acTL", b""), chunk(b"fcTL", b"?"))
    cases["png-unknown-chunks"] = forge.small_png(*[chunk(b"abCd", b"?" * 99)] * 999)
    cases["png-idat-in-pieces"] = _idat_in_pieces()
    return cases


def _idat_in_pieces() -> bytes:
    raw = zlib.compress(b"".join(b"\0" + row.tobytes() for row in np.asarray(pattern())))
    pieces = [chunk(b"IDAT", raw[i : i + 1]) for i in range(len(raw))]
    return forge.png(forge.ihdr(forge.WIDTH_PX, forge.HEIGHT_PX), *pieces)


def _odd_jpegs() -> dict[str, bytes]:
    many = [forge.segment(0xFE, b"remark")] * 500
    cut_profile = forge.segment(0xE2, b"ICC_PROFILE\0\1\2" + bytes(500))
    false_profile = forge.segment(0xE2, b"ICC_PROFILE\0\1\1" + b"?" * 5000)
    overlapping = forge.segment(0xE1, forge.overlapping_exif(2000, 30_000))
    return {
        "jpeg-grey": saved(in_mode("L"), "JPEG"),
        "jpeg-cmyk": saved(in_mode("CMYK"), "JPEG"),
        "jpeg-444": saved(pattern(), "JPEG", subsampling="4:4:4"),
        "jpeg-restarts": saved(pattern(), "JPEG", restart_marker_blocks=1),
        "jpeg-quality-1": saved(pattern(), "JPEG", quality=1),
        "jpeg-remarks": forge.jpeg_with(*many),
        "jpeg-fill-bytes": forge.jpeg_with(b"\xff" * 100_000),
        "jpeg-rubbish-between": forge.jpeg_with(forge.segment(0xFE, b""), b"rubbish" * 100),
        "jpeg-exif-garbage": forge.jpeg_with(forge.segment(0xE1, b"Exif\0\0" + b"?" * 999)),
        "jpeg-exif-empty": forge.jpeg_with(forge.segment(0xE1, b"Exif\0\0")),
        "jpeg-exif-overlapping": forge.jpeg_with(overlapping),
        "jpeg-exif-twenty-times": forge.jpeg_with(*[overlapping] * 20),
        "jpeg-exif-orientation-99": forge.jpeg_with(forge.segment(0xE1, forge.exif(99))),
        "jpeg-xmp": forge.jpeg_with(
            forge.segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b"<x/>" * 9999)
        ),
        "jpeg-profile-cut": forge.jpeg_with(cut_profile),
        "jpeg-profile-false": forge.jpeg_with(false_profile),
        "jpeg-photoshop-garbage": forge.jpeg_with(
            forge.segment(0xED, b"Photoshop 3.0\0" + b"8BIM\xff" * 99)
        ),
        "jpeg-several-pictures": forge.jpeg_with(forge.segment(0xE2, b"MPF\0" + b"?" * 50)),
        "jpeg-20-scans": forge.many_scans(20),
    }


def _odd_tiffs() -> dict[str, bytes]:
    pages = [pattern(9, 9)] * 200
    cases = {
        f"tiff-{mode}".lower().replace(";", "-"): saved(in_mode(mode), "TIFF")
        for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "I;16")
    }
    for packing in ("packbits", "tiff_lzw", "tiff_adobe_deflate", "jpeg"):
        cases[f"tiff-{packing}"] = saved(pattern(), "TIFF", compression=packing)
    cases["tiff-group4"] = saved(in_mode("1"), "TIFF", compression="group4")
    cases["tiff-pages-200"] = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    cases["tiff-next-is-itself"] = (
        forge.gray_tiff(16, 16)[:118] + struct.pack("<I", 8) + forge.gray_tiff(16, 16)[122:]
    )
    cases["tiff-exif-is-itself"] = forge.gray_tiff(16, 16, t34665=(4, 1, 8))
    cases["tiff-sub-directories-cyclic"] = forge.gray_tiff(16, 16, t330=(4, 1, 8))
    cases["tiff-orientation-99"] = forge.gray_tiff(16, 16, t274=(3, 1, 99))
    cases["tiff-remark-out-of-file"] = forge.gray_tiff(16, 16, t270=(2, 1 << 30, 1 << 30))
    return cases


def _odd_others() -> dict[str, bytes]:
    frames = [pattern(8, 8).point(lambda v, i=i: (v + i) % 256) for i in range(60)]
    row = bytes(range(64))
    return {
        "gif-frames-5000": forge.gif_frames(5000),
        "gif-remarks": _gif_with(b"\x21\xfe" + (b"\xff" + b"?" * 255) * 2000 + b"\0"),
        "gif-loop-garbage": _gif_with(b"\x21\xff\x0bNETSCAPE2.0\x01?\0"),
        "gif-transparent": saved(in_mode("RGBA"), "GIF"),
        "gif-grey": saved(in_mode("L"), "GIF"),
        "gif-interlaced": saved(in_mode("P"), "GIF", interlace=1),
        "webp-frames": saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]),
        "webp-grey": saved(in_mode("L"), "WEBP"),
        "webp-exif-garbage": saved(pattern(), "WEBP", exif=b"Exif\0\0????"),
        "webp-exif-overlapping": saved(
            pattern(), "WEBP", exif=forge.overlapping_exif(9000, 99_999)
        ),
        "webp-profile-garbage": saved(pattern(), "WEBP", icc_profile=b"?" * 999),
        "bmp-1": forge.bmp(32, 4, 1, row[:16]),
        "bmp-4": forge.bmp(8, 4, 4, row[:16]),
        "bmp-8": forge.bmp(4, 4, 8, row[:16]),
        "bmp-16": forge.bmp(2, 4, 16, row[:16]),
        "bmp-24": forge.bmp(1, 4, 24, row[:16]),
        "bmp-32": forge.bmp(1, 4, 32, row[:16]),
        "bmp-from-the-top": forge.bmp(4, -4, 8, row[:16]),
        "pam-grey": b"P7\nWIDTH 4\nHEIGHT 2\nDEPTH 1\nMAXVAL 255\nENDHDR\n" + row[:8],
        "pam-grey-alpha": b"P7\nWIDTH 4\nHEIGHT 2\nDEPTH 2\nMAXVAL 255\nENDHDR\n" + row[:16],
        "pam-rgb-16": b"P7\nWIDTH 2\nHEIGHT 2\nDEPTH 3\nMAXVAL 65535\nENDHDR\n" + row[:24],
        "pam-remarks": b"P7\n# a\n# b\nWIDTH 4\nHEIGHT 2\nDEPTH 4\nMAXVAL 255\nTUPLTYPE "
        b"RGB_ALPHA\nENDHDR\n" + row[:32],
        "pbm": b"P4\n9 4\n" + row[:8],
        "pgm-white-is-1": b"P5 4 2 1\n" + bytes([0, 1] * 4),
        "pgm-white-is-1000": b"P5 4 2 1000\n" + row[:16],
        "pgm-16": b"P5 4 2 65535\n" + row[:16],
        "pgm-remarks": b"P5\n# one\n4 # two\n2\n255\n" + row[:8],
    }


def _gif_with(block: bytes) -> bytes:
    data = saved(in_mode("P"), "GIF")
    at = data.index(b"\x2c\0\0\0\0")
    return data[:at] + block + data[at:]


def _turned() -> dict[str, bytes]:
    cases: dict[str, bytes] = {}
    for turn in range(1, 9):
        held = forge.exif(turn, "<" if turn % 2 else ">")
        cases[f"jpeg-turned-{turn}"] = forge.jpeg_with(forge.segment(0xE1, held))
        cases[f"png-turned-{turn}"] = forge.small_png(after=(chunk(b"eXIf", held[6:]),))
        cases[f"webp-turned-{turn}"] = saved(pattern(), "WEBP", exif=held)
        cases[f"tiff-turned-{turn}"] = forge.gray_tiff(16, 8, t274=(3, 1, turn))
    return cases


def _polyglots() -> dict[str, bytes]:
    script = b"<script>alert(1)</script>"
    archive = b"PK\x03\x04" + bytes(26) + b"PK\x05\x06" + bytes(18)
    return {
        "png-and-html": saved(pattern(), "PNG") + script,
        "jpeg-and-zip": saved(pattern(), "JPEG") + archive,
        "jpeg-and-script": forge.jpeg_with(forge.segment(0xFE, script)),
        "gif-and-script": saved(in_mode("P"), "GIF") + script,
        "bmp-and-zip": saved(pattern(), "BMP") + archive,
        "webp-and-html": saved(pattern(), "WEBP") + script,
        "png-and-png": saved(pattern(), "PNG") * 2,
    }
