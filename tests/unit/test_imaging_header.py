"""Sizes by the header, compared with what a library of pictures says they are."""

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from imaging.header import size_px

KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "PPM", "TIFF")


def written(kind: str, size: tuple[int, int], mode: str = "RGB", **how: bool) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind, **how)
    return out.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@given(width=st.integers(1, 400), height=st.integers(1, 400))
def test_the_size_is_that_of_the_picture(kind: str, width: int, height: int) -> None:
    assert size_px(written(kind, (width, height))) == (width, height)


@pytest.mark.parametrize("how", [{"lossless": True}, {"lossless": False}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_every_kind_of_webp(mode: str, how: dict[str, bool]) -> None:
    assert size_px(written("WEBP", (123, 45), mode, **how)) == (123, 45)


def test_every_kind_of_jpeg() -> None:
    assert size_px(written("JPEG", (123, 45), "L", progressive=True)) == (123, 45)
    plain = written("JPEG", (123, 45))
    assert size_px(plain[:2] + b"\xff\xe1\0\x04ab\xff\xff" + plain[3:]) == (123, 45)


def test_of_two_frames_of_a_jpeg_the_one_that_its_reader_takes() -> None:
    plain = written("JPEG", (123, 45))
    small = b"\xff\xc0\0\x0b\x08" + struct.pack(">HH", 1, 2) + b"\x01\x01\x11\0"
    both = plain[:2] + small + plain[2:]
    assert size_px(both) == Image.open(io.BytesIO(both)).size == (123, 45)


def test_a_picture_in_any_byte_order_of_tiff() -> None:
    entries = ((256, 3, 1, 70_000 >> 8), (257, 4, 1, 70_000))
    body = b"".join(
        struct.pack(">HHIHH", tag, kind, count, value, 0)
        if kind == 3
        else struct.pack(">HHII", tag, kind, count, value)
        for tag, kind, count, value in entries
    )
    assert size_px(b"MM\0*" + struct.pack(">IH", 8, 2) + body) == (70_000 >> 8, 70_000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"RIFF\0\0\0\0WAVE",
        b"\0\0\0\x20ftypavif",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xda\0\x02",
        b"II*\0\x08\0\0\0\0\0",
    ],
)
def test_what_tells_no_size(data: bytes) -> None:
    assert size_px(data) is None


@given(kind=st.sampled_from(KINDS), keep=st.integers(0, 60), junk=st.binary(max_size=40))
def test_whatever_is_cut_or_broken_is_read_without_harm(kind: str, keep: int, junk: bytes) -> None:
    size = size_px(written(kind, (31, 17))[:keep] + junk)
    assert size is None or len(size) == 2
