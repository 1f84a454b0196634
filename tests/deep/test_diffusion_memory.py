"""Pictures one after another: the native library's memory stays as it is.

A dozen in a plain run, by the allocator's own books; `COHABIT_DEEP=1` makes 200 of all kinds, and
looks at the whole process, too.
"""

import ctypes
import gc
import os
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import psutil
import pytest
import pytest_asyncio

from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from imaging.encode import encode
from imaging.values import Encoding, Picture
from tests.diffusion_kit import Engine, asking, engine, spec_of_tiny
from tests.tiny_diffusion import make_tiny_diffusion, write_lora

DEEP = os.environ.get("COHABIT_DEEP") == "1"
SIDE_PX = 128
PICTURE_BYTES = SIDE_PX * SIDE_PX * 3
PICTURES = 200 if DEEP else 12
SPARED_MIB = 8
"""Caches of Python's and of the allocator's that fill up in the beginning."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1800)]


_BOOKS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Books(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = [(name, ctypes.c_size_t) for name in _BOOKS]


def allocated_bytes() -> int:
    """What was allocated and not freed, in arenas and in maps of their own."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Books
    gc.collect()
    books = mallinfo2()
    return int(books.uordblks + books.hblkhd)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    made = make_tiny_diffusion(tmp_path_factory.mktemp("tiny"))
    folder = tmp_path_factory.mktemp("loras")
    write_lora(folder / "ink.safetensors")
    spec = spec_of_tiny(made, lora_dir=str(folder), result_cache_entries=0)
    async with engine(spec, tmp_path_factory.mktemp("run")) as running:
        yield running


def requests() -> list[dict[str, Any]]:
    """One of each kind."""
    noise = np.random.default_rng(0).integers(0, 256, (SIDE_PX, SIDE_PX, 3), np.uint8)
    made = encode(Picture(noise), Encoding())
    media = common_pb2.Media(data=made.data, mime_type=made.mime_type)
    return [
        {},
        {"init_image": media},
        {"init_image": media, "mask": media},
        {"reference_images": [media]},
        {"loras": [pb.Lora(lora_id="ink")]},
        {"preview": pb.GenerateRequest.PreviewOptions(every_steps=1)},
        {"vae_tiling": pb.VAE_TILING_ON},
    ]


async def make(tiny: Engine, kinds: list[dict[str, Any]], count: int) -> None:
    for at in range(count):
        fields = kinds[at % len(kinds)]
        await tiny.generate(asking(steps=1, seed=at, width_px=SIDE_PX, height_px=SIDE_PX, **fields))


async def test_memory_stays_flat(tiny: Engine) -> None:
    kinds = requests() if DEEP else [{}]
    await make(tiny, kinds, max(5, 2 * len(kinds)))
    allocated, resident = allocated_bytes(), psutil.Process().memory_info().rss
    await make(tiny, kinds, PICTURES)
    grown = allocated_bytes() - allocated
    resident_mib = (psutil.Process().memory_info().rss - resident) / (1 << 20)
    print(f"{PICTURES} pictures: allocated {grown:+d} bytes, resident {resident_mib:+.1f} MiB")  # noqa: T201
    assert grown < PICTURES * PICTURE_BYTES / 4
    if DEEP:
        assert resident_mib < SPARED_MIB
