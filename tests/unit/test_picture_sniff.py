"""What a file is by its first bytes, compared with what a library of pictures says it is."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edge.pictures.sniff import mime_type_of, size_of

FORMATS = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "PPM": "image/x-portable-anymap",
    "TIFF": "image/tiff",
}


def written(kind: str, size: tuple[int, int], mode: str = "RGB", **how: bool) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind, **how)
    return out.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
@given(width=st.integers(1, 400), height=st.integers(1, 400))
def test_a_picture_is_known_and_so_is_its_size(kind: str, width: int, height: int) -> None:
    data = written(kind, (width, height))
    assert mime_type_of(data) == FORMATS[kind]
    assert size_of(data) == (None if kind == "TIFF" else (width, height))


@pytest.mark.parametrize("how", [{"lossless": True}, {"lossless": False}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_every_kind_of_webp(mode: str, how: dict[str, bool]) -> None:
    assert size_of(written("WEBP", (123, 45), mode, **how)) == (123, 45)


def test_every_kind_of_jpeg() -> None:
    assert size_of(written("JPEG", (123, 45), "L", progressive=True)) == (123, 45)
    plain = written("JPEG", (123, 45))
    assert size_of(plain[:2] + b"\xff\xe1\0\x04ab\xff\xff" + plain[3:]) == (123, 45)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"<html>",
        b"RIFF\0\0\0\0WAVE",
        b"%PDF-1.7",
    ],
)
def test_what_is_no_picture(data: bytes) -> None:
    assert (mime_type_of(data), size_of(data)) == ("", None)


@pytest.mark.parametrize("brand", [b"avif", b"heic", b"mp42"])
def test_what_is_kept_in_boxes(brand: bytes) -> None:
    told = mime_type_of(b"\0\0\0\x20ftyp" + brand)
    assert told == {b"avif": "image/avif", b"heic": "image/heic"}.get(brand, "")


@given(kind=st.sampled_from(list(FORMATS)), keep=st.integers(0, 60), junk=st.binary(max_size=40))
def test_whatever_is_cut_or_broken_is_read_without_harm(kind: str, keep: int, junk: bytes) -> None:
    size = size_of(written(kind, (31, 17))[:keep] + junk)
    assert size is None or len(size) == 2
