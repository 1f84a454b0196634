"""Decoding: every kind and mode comes out right, upright and in sRGB, or is refused by name."""

import io
import struct
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from chassis.errors import Fault, Reason
from imaging.decode import decode, decode_gray, probe
from imaging.exif import TURNS
from imaging.values import Bounds
from tests import picture_forge as forge
from tests.hostile_pictures import all_cases
from tests.picture_forge import chunk, in_mode, pattern, saved

_BOUNDS = Bounds()
_RGB = np.asarray(pattern())


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_what_loses_nothing_comes_back_exactly(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    picture = decode(saved(pattern(), kind, **options), _BOUNDS, "image")
    assert np.array_equal(picture.rgb, _RGB)
    assert picture.alpha is None
    assert picture.rgb.flags.writeable
    assert picture.rgb.flags.c_contiguous


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_comes_back_exactly(kind: str, mode: str) -> None:
    image = in_mode(mode)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    data = saved(image, kind, **options)
    picture = decode(data, _BOUNDS, "image")
    assert picture.alpha is not None
    assert np.array_equal(picture.alpha, _RGB[..., 0])
    assert np.array_equal(picture.rgb, np.asarray(image.convert("RGBA"))[..., :3])
    assert np.array_equal(decode_gray(data, _BOUNDS, "mask"), picture.alpha)


def test_an_opaque_alpha_is_none() -> None:
    image = pattern()
    image.putalpha(255)
    assert decode(saved(image, "PNG"), _BOUNDS, "image").alpha is None
    expected = np.asarray(pattern().convert("L"))
    assert np.array_equal(decode_gray(saved(image, "PNG"), _BOUNDS, "mask"), expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_are_scaled(kind: str) -> None:
    values = np.linspace(0, 65_535, 48 * 32).astype(np.uint16).reshape(32, 48)
    matte = decode_gray(saved(Image.fromarray(values), kind), _BOUNDS, "mask")
    assert np.array_equal(matte, np.round(values / 257).astype(np.uint8))


def test_sixteen_bits_of_colour_are_scaled() -> None:
    values = np.arange(0, 65_536, 257, dtype=">u2")[: 16 * 5 * 3].reshape(5, 16 * 3)
    raw = b"".join(b"\0" + row.tobytes() for row in values)
    data = forge.png(forge.ihdr(16, 5, 16, 2), chunk(b"IDAT", zlib.compress(raw)))
    rgb = decode(data, _BOUNDS, "image").rgb
    assert np.array_equal(rgb, (values // 257).astype(np.uint8).reshape(5, 16, 3))


@pytest.mark.parametrize("bits", [8, 16])
def test_tiff_in_which_zero_is_white(bits: int) -> None:
    plain, turned = (
        decode_gray(
            forge.gray_tiff(8, 4, t258=(3, 1, bits), t262=(3, 1, zero)), _BOUNDS, "mask"
        ).astype(int)
        for zero in (1, 0)
    )
    assert np.abs(plain + turned - 255).max() <= (bits == 16)


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_the_transparent_grey_is_found_at_every_depth(depth: int) -> None:
    key = 1 if depth < 16 else 0x4041
    raw = zlib.compress(b"\0" + bytes(range(64))[: 16 * depth // 8])
    if depth == 16:
        raw = zlib.compress(b"\0" + struct.pack(">16H", *[0x4041, *[9] * 15]))
    data = forge.png(
        forge.ihdr(16, 1, depth, 0), chunk(b"tRNS", struct.pack(">H", key)), chunk(b"IDAT", raw)
    )
    plain = forge.png(forge.ihdr(16, 1, depth, 0), chunk(b"IDAT", raw))
    alpha = decode(data, _BOUNDS, "image").alpha
    assert alpha is not None
    gray = decode_gray(plain, _BOUNDS, "image")
    shown = round(key * 255 / ((1 << depth) - 1))
    assert np.array_equal(alpha == 0, gray == shown)
    assert (alpha == 0).any()


@pytest.mark.parametrize(("kind", "depth"), [("B", 8), ("H", 16)])
def test_a_transparent_colour_is_found_at_every_depth(kind: str, depth: int) -> None:
    most = (1 << depth) - 1
    key, other = (most, most // 2, 0), (most, most // 2, most)
    row = zlib.compress(b"\0" + struct.pack(f">6{kind}", *key, *other))
    data = forge.png(
        forge.ihdr(2, 1, depth, 2), chunk(b"tRNS", struct.pack(">3H", *key)), chunk(b"IDAT", row)
    )
    alpha = decode(data, _BOUNDS, "image").alpha
    assert alpha is not None
    assert alpha.tolist() == [[0, 255]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (forge.gray_tiff(8, 4, t259=(3, 1, 50_001)), "packed in a way that is not read"),
        (saved(pattern(), "JPEG")[:2] + b"\xff\xe0\0\1", "a segment that has no end"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, words: str) -> None:
    with pytest.raises(Fault, match=words):
        decode(data, _BOUNDS, "image")


def test_a_palette_with_transparency() -> None:
    palette = chunk(b"PLTE", bytes([10, 20, 30, 40, 50, 60]))
    pixels = chunk(b"IDAT", zlib.compress(b"\0\0\1"))
    data = forge.png(forge.ihdr(2, 1, 8, 3), palette, chunk(b"tRNS", b"\x80"), pixels)
    picture = decode(data, _BOUNDS, "image")
    assert picture.rgb.tolist() == [[[10, 20, 30], [40, 50, 60]]]
    assert picture.alpha is not None
    assert picture.alpha.tolist() == [[0x80, 255]]


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_is_not_a_negative(kind: str) -> None:
    flat = Image.new("RGB", (64, 64), (200, 60, 30)).convert("CMYK")
    options = {"quality": 95} if kind == "JPEG" else {}
    rgb = decode(saved(flat, kind, **options), _BOUNDS, "image").rgb
    assert np.abs(rgb.astype(int) - (200, 60, 30)).max() <= 4


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_picture_comes_out_upright(kind: str, turn: int) -> None:
    upright = pattern(24, 16)
    stored = upright.transpose(_UNDONE[TURNS[turn]]) if turn > 1 else upright
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    options |= {"lossless": True} if kind == "WEBP" else {}
    held = Image.Exif()
    held[0x0112] = turn
    data = saved(stored, kind, exif=held, **options)
    rgb = decode(data, _BOUNDS, "image").rgb
    assert rgb.shape == (16, 24, 3)
    assert np.abs(rgb.astype(int) - np.asarray(upright)).max() <= 8
    told = probe(data, _BOUNDS, "image")
    assert (told.width_px, told.height_px) == (24, 16)


_T = Image.Transpose
_UNDONE = {turn: turn for turn in TURNS.values()} | {
    _T.ROTATE_90: _T.ROTATE_270,
    _T.ROTATE_270: _T.ROTATE_90,
}


def test_an_embedded_profile_is_applied() -> None:
    swapped = decode(saved(pattern(), "PNG", icc_profile=_swapping_profile()), _BOUNDS, "image")
    assert np.abs(swapped.rgb.astype(int) - _RGB[..., ::-1]).mean() < 4
    mask = decode_gray(saved(pattern(), "PNG", icc_profile=_swapping_profile()), _BOUNDS, "mask")
    assert np.array_equal(mask, np.asarray(pattern().convert("L")))


def _swapping_profile() -> bytes:
    """sRGB with its first and third primary in each other's place, under another name."""
    data = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = data.replace(b"rXYZ", b"tmp?").replace(b"bXYZ", b"rXYZ").replace(b"tmp?", b"bXYZ")
    return data.replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))


@pytest.mark.parametrize("name", ["srgb", "garbage", "of-grey"])
def test_a_profile_that_says_nothing_new_changes_nothing(name: str) -> None:
    profile = {
        "srgb": ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
        "garbage": b"?" * 500,
        "of-grey": _swapping_profile().replace(b"RGB XYZ", b"GRAYXYZ"),
    }[name]
    rgb = decode(saved(pattern(), "PNG", icc_profile=profile), _BOUNDS, "image").rgb
    assert np.array_equal(rgb, _RGB)


def test_animations_show_their_first_picture() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ((250, 0, 0), (0, 250, 0))]
    for kind in ("GIF", "WEBP", "PNG", "TIFF"):
        data = saved(frames[0], kind, save_all=True, append_images=frames[1:])
        red, green, _ = decode(data, _BOUNDS, "image").rgb[4, 4]
        assert red > 200 > 50 > green, kind


def test_the_type_is_the_bytes_own() -> None:
    types = {
        "PNG": "image/png",
        "JPEG": "image/jpeg",
        "WEBP": "image/webp",
        "GIF": "image/gif",
        "BMP": "image/bmp",
        "TIFF": "image/tiff",
        "PPM": "image/x-portable-anymap",
    }
    for kind, mime_type in types.items():
        told = probe(saved(pattern(), kind), _BOUNDS, "image")
        assert (told.width_px, told.height_px, told.mime_type) == (48, 32, mime_type)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "PPM"])
def test_the_size_is_read_without_a_copy_of_the_pixels(kind: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (900, 900, 3), np.uint8)
    data = saved(Image.fromarray(noise), kind)
    assert len(data) > 400_000
    tracemalloc.start()
    try:
        told = probe(data, _BOUNDS, "image")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (told.width_px, told.height_px) == (900, 900)
    assert peak_bytes < 250_000


def test_the_size_by_the_header_is_that_of_the_pixels() -> None:
    compared = 0
    for case in all_cases():
        try:
            picture = decode(case.data, _BOUNDS, "image")
        except Fault:
            continue
        told = probe(case.data, _BOUNDS, "image")
        assert (told.width_px, told.height_px) == (picture.width_px, picture.height_px), case.name
        compared += 1
    assert compared > 100


@pytest.mark.parametrize("read", [probe, decode, decode_gray])
@pytest.mark.parametrize("bounds", [Bounds(max_px=48 * 32 - 1), Bounds(max_side_px=47)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_more_pixels_than_are_read(read: object, bounds: Bounds, kind: str) -> None:
    assert callable(read)
    with pytest.raises(Fault) as raised:
        read(saved(pattern(), kind), bounds, "image[2]")
    assert raised.value.reason is Reason.IMAGE_TOO_LARGE
    assert raised.value.metadata["param"] == raised.value.metadata["field"] == "image[2]"
    assert raised.value.metadata["max_px"] == str(bounds.max_px)
    assert "48 x 32" in raised.value.message


def test_exactly_at_the_bound_is_read() -> None:
    bounds = Bounds(max_px=48 * 32, max_side_px=48)
    assert decode(saved(pattern(), "PNG"), bounds, "image").width_px == 48


def test_more_bytes_than_are_read() -> None:
    with pytest.raises(Fault) as raised:
        decode(saved(pattern(), "BMP"), Bounds(max_bytes=100), "image")
    assert raised.value.reason is Reason.PAYLOAD_TOO_LARGE
    assert raised.value.row.http == 413


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("svg", "SVG"),
        ("svg-behind-mark", "SVG"),
        ("html", "HTML"),
        ("pdf", "PDF"),
        ("heic", "HEIC"),
        ("avif", "AVIF"),
        ("mp4", "video"),
        ("base64", "base64"),
        ("data-url", "data URL"),
        ("empty", "empty"),
        ("pnm-as-text", "text"),
        ("png-without-pixels", "PNG"),
        ("tiff-float", "floating point"),
    ],
)
def test_the_sentence_says_what_was_seen_and_what_is_taken(name: str, word: str) -> None:
    data = next(case.data for case in all_cases() if case.name == f"hostile/{name}")
    with pytest.raises(Fault) as raised:
        decode(data, _BOUNDS, "mask")
    assert raised.value.reason is Reason.INVALID_IMAGE
    assert word in raised.value.message
    assert "PNG, JPEG, WebP" in raised.value.message
    assert raised.value.metadata == {"field": "mask", "param": "mask"}


def test_a_file_cut_short_is_said_to_be() -> None:
    data = saved(pattern(), "JPEG")
    with pytest.raises(Fault, match="cut short"):
        decode(data[: len(data) // 2], _BOUNDS, "image")


_SOUND = [saved(pattern(), kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(_SOUND), st.data())
def test_nothing_but_a_picture_or_a_fault(sound: bytes, data: st.DataObject) -> None:
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(2, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
        if len(changed) < 4:
            break
    with warnings.catch_warnings(record=True) as remarks:
        assert _outcome(bytes(changed)) in {"picture", 400, 413}
    assert remarks == []


def _outcome(data: bytes) -> str | int:
    try:
        picture = decode(data, Bounds(max_px=1_000_000), "image")
    except Fault as fault:
        return fault.row.http
    return "picture" if picture.rgb.ndim == 3 else "no picture"


def test_the_library_is_left_as_it_was() -> None:
    before = Image.MAX_IMAGE_PIXELS
    decode(io.BytesIO(saved(pattern(), "PNG")).getvalue(), _BOUNDS, "image")
    assert before == Image.MAX_IMAGE_PIXELS
