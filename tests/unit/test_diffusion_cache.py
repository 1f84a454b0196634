"""The result cache: its bounds, and that nothing which changes a byte is left out of its key."""

import os
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.diffusion.core.cache_key import HARMLESS, cache_key
from services.diffusion.core.sizes import Settled
from services.diffusion.fingerprints import Fingerprints
from services.diffusion.result_cache import ResultCache
from services.diffusion.values import File, Lora, Output, Previews, Settings

OUTPUT = Output("webp", 85, lossless=False, webp_method=4, parameters=True)
LORA = Lora("ink", "/loras/ink.safetensors", 1.0, "its bytes")
SETTINGS = Settings(
    prompt="a cat",
    negative_prompt="",
    size=Settled(64, 64, rounded=False),
    steps=4,
    guidance=1.0,
    distilled_guidance=3.5,
    image_guidance=None,
    sampler="euler",
    scheduler="discrete",
    seed=1,
    seeded=True,
    batch=1,
    loras=(LORA,),
    tiled=False,
    strength=0.75,
    clip_skip=0,
    eta=None,
    output=OUTPUT,
    previews=Previews(),
    cached=True,
)
CHANGES: dict[str, list[Any]] = {
    "prompt": ["a cat ", "A cat"],
    "negative_prompt": ["dog"],
    "size": [Settled(80, 64, rounded=False), Settled(64, 80, rounded=False)],
    "steps": [5],
    "guidance": [1.0001],
    "distilled_guidance": [3.6],
    "image_guidance": [1.0],
    "sampler": ["euler_a"],
    "scheduler": ["karras"],
    "loras": [
        (),
        (LORA, LORA),
        (replace(LORA, scale=0.999),),
        (replace(LORA, file="/loras/other.safetensors"),),
        (replace(LORA, fingerprint="other bytes"),),
    ],
    "tiled": [True],
    "strength": [0.7500001, None],
    "clip_skip": [1],
    "eta": [0.0],
    "output": [
        replace(OUTPUT, format="png"),
        replace(OUTPUT, quality=84),
        replace(OUTPUT, lossless=True),
        replace(OUTPUT, webp_method=3),
        replace(OUTPUT, parameters=False),
    ],
}
INPUTS, ENGINE = ("init", "mask", "ref"), ("tiny", "file=abc", "library 1")


def key(settings: Settings = SETTINGS, seed: int = 1, **other: Any) -> bytes:
    return cache_key(
        asdict(settings), seed, other.get("inputs", INPUTS), other.get("engine", ENGINE)
    )


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CHANGES.items() for value in values]
)
def test_each_setting_that_changes_a_byte_changes_the_key(name: str, value: Any) -> None:
    assert key(replace(SETTINGS, **{name: value})) != key()


def test_no_setting_is_forgotten() -> None:
    assert {field.name for field in fields(Settings)} == CHANGES.keys() | HARMLESS


def test_what_changes_no_byte_changes_no_key() -> None:
    previews = Previews(1, 64, decoded=True)
    other = replace(SETTINGS, seed=9, seeded=False, batch=3, previews=previews, cached=False)
    assert key(other) == key()


@pytest.mark.parametrize(
    "other",
    [
        {"inputs": ("mask", "init", "ref")},
        {"inputs": ("init", "mask", "")},
        {"inputs": ("init", "mask", "ref", "ref")},
        {"engine": ("other", "file=abc", "library 1")},
        {"engine": ("tiny", "file=abd", "library 1")},
        {"engine": ("tiny", "file=abc", "library 2")},
        {"seed": 2},
    ],
)
def test_seeds_pictures_and_what_is_loaded_count(other: dict[str, Any]) -> None:
    assert key(**other) != key()


@example([(0, 400_000), (1, 400_000), (2, 400_000)], 5, 1)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 400_000)),
        max_size=60,
    ),
    st.integers(0, 5),
    st.integers(0, 2),
)
def test_the_cache_never_holds_more_than_it_may(
    asked: list[tuple[int, int]], entries: int, mib: int
) -> None:
    cache = ResultCache(entries, mib)
    last: dict[bytes, File] = {}
    for name, size in asked:
        at, file = bytes([name]), File(b"x" * size, "image/png")
        cache.keep(at, file)
        last[at] = file
        assert len(cache) <= entries
        assert cache.held_bytes <= mib << 20
        for known, kept in last.items():
            assert cache.find(known) in {None, kept}
    if asked and entries and 0 < asked[-1][1] <= mib << 20:
        assert cache.find(bytes([asked[-1][0]])) is not None


def test_what_was_not_asked_for_longest_goes_first() -> None:
    cache = ResultCache(2, 1)
    for name in (b"a", b"b"):
        cache.keep(name, File(name, "image/png"))
    cache.find(b"a")
    cache.keep(b"c", File(b"c", "image/png"))
    assert cache.find(b"b") is None
    assert cache.find(b"a") is not None


def rewritten(path: Path) -> None:
    stat = path.stat()
    path.write_bytes(b"y" * stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"z")


def replaced(path: Path) -> None:
    """As editors and downloads do, and with the old time."""
    stat = path.stat()
    other = path.with_suffix(".new")
    other.write_bytes(b"w" * stat.st_size)
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)


def written_into(path: Path) -> None:
    """The same file, with the old time."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.write(b"v")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("change", [rewritten, grown, replaced, written_into])
def test_a_changed_file_has_another_fingerprint(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path, fingerprints = tmp_path / "weights", Fingerprints()
    path.write_bytes(b"x" * 1000)
    before = fingerprints.of(path)
    assert fingerprints.of(path) == before == Fingerprints().of(path)
    change(path)
    assert fingerprints.of(path) != before


def test_the_middle_of_a_large_file_counts_by_its_time(tmp_path: Path) -> None:
    path, fingerprints = tmp_path / "weights", Fingerprints()
    with path.open("wb") as file:
        file.truncate(65 << 20)
    before = fingerprints.of(path)
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(32 << 20)
        file.write(b"!")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert fingerprints.of(path) != before


def test_both_ends_of_a_large_file_count(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    seen = set()
    for at in (0, 32 << 20, (65 << 20) - 1):
        with path.open("wb") as file:
            file.truncate(65 << 20)
            file.seek(at)
            file.write(b"!")
        seen.add(Fingerprints().of(path).rpartition(":")[2])  # the hash, without the times
    assert len(seen) == 3
