"""The pictures of a request: brought to the size that is needed, and told apart by their files."""

import numpy as np
import pytest

from imaging.encode import encode
from imaging.values import Encoding, Format, Picture, Pixels
from services.diffusion.core.sizes import Settled
from services.diffusion.inputs import hashes, init_size, read
from services.diffusion.values import Asked

SIZE = Settled(64, 96, rounded=False)


def png(picture: Picture | Pixels) -> bytes:
    return encode(picture, Encoding(Format.PNG)).data


def plain(width: int, height: int, value: int = 200) -> Picture:
    return Picture(np.full((height, width, 3), value, np.uint8))


def half_cut_out(width: int, height: int, value: int) -> Picture:
    """Its left half is transparent."""
    alpha = np.full((height, width), 255, np.uint8)
    alpha[:, : width // 2] = 0
    return Picture(plain(width, height, value).rgb, alpha)


START = png(plain(40, 30))


def mask_of(picture: Picture | Pixels) -> Pixels:
    mask = read(Asked(init_image=START, mask=png(picture)), SIZE).mask
    assert mask is not None
    return mask


def test_a_start_has_the_size_of_the_picture() -> None:
    read_init = read(Asked(init_image=START), SIZE).init
    assert read_init is not None
    assert read_init.shape == (96, 64, 3)
    assert init_size(Asked(init_image=START)) == (40, 30)
    assert init_size(Asked()) is None


def test_a_start_that_is_transparent_lies_on_white() -> None:
    init = read(Asked(init_image=png(half_cut_out(64, 96, 10))), SIZE).init
    assert init is not None
    assert (init[0, 0].tolist(), init[0, -1].tolist()) == ([255] * 3, [10] * 3)


@pytest.mark.parametrize("value", [0, 128, 255])
def test_what_is_cut_out_of_a_mask_is_painted_whatever_its_colours(value: int) -> None:
    mask = mask_of(half_cut_out(32, 48, value))
    assert mask.shape == (96, 64)
    assert (mask[:, 0].min(), mask[:, -1].max()) == (255, 0)


def test_an_opaque_mask_is_read_by_its_brightness() -> None:
    gray = np.zeros((48, 32), np.uint8)
    gray[:, :16] = 255
    mask = mask_of(gray)
    assert mask.shape == (96, 64)
    assert (mask[:, 0].min(), mask[:, -1].max()) == (255, 0)
    opaque = Picture(plain(32, 48, 255).rgb, np.full((48, 32), 255, np.uint8))
    assert mask_of(opaque).min() == 255


def test_what_is_looked_at_has_no_more_pixels_than_what_is_made() -> None:
    given = (png(plain(20, 10)), png(plain(400, 100)))
    small, large = read(Asked(reference_images=given), SIZE).references
    assert small.shape == (10, 20, 3)
    height, width = large.shape[:2]
    assert height * width <= 64 * 96
    assert width / height == pytest.approx(4, rel=0.1)


def test_every_file_counts_at_its_place() -> None:
    a, b = b"a", b"b"
    told = [
        hashes(Asked()),
        hashes(Asked(init_image=a)),
        hashes(Asked(init_image=b)),
        hashes(Asked(init_image=a, mask=a)),
        hashes(Asked(init_image=a, mask=b)),
        hashes(Asked(init_image=a, reference_images=(a,))),
        hashes(Asked(init_image=a, reference_images=(a, b))),
        hashes(Asked(init_image=a, reference_images=(b, a))),
        hashes(Asked(reference_images=(a,))),
    ]
    assert len(set(told)) == len(told)
