"""Five hundred hostile pictures: a picture or a sentence, soon and in little room."""

import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault
from imaging.decode import decode
from imaging.values import Bounds
from tests.hostile_pictures import COUNT, all_cases

_ROOT = Path(__file__).parents[2]
_BOUNDS = Bounds(max_px=2_000_000)


@pytest.fixture(scope="module")
def read() -> list[dict[str, Any]]:
    """What came of each, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.hostile_reading"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Warning" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_there_are_five_hundred_and_each_is_its_own() -> None:
    cases = all_cases()
    assert len(cases) == COUNT
    assert len({case.name for case in cases}) == COUNT
    assert max(len(case.data) for case in cases) <= 2 << 20


def test_they_are_the_same_ones_every_time(read: list[dict[str, Any]]) -> None:
    again = [(case.name, hashlib.sha256(case.data).hexdigest()) for case in all_cases()]
    assert [(line["name"], line["sha256"]) for line in read] == again


def test_each_comes_out_as_it_must(read: list[dict[str, Any]]) -> None:
    assert len(read) == COUNT
    wrong = [
        line
        for line in read
        if not (
            (line["came_out"] == "picture" and line["verdict"] != "hostile")
            or (line["came_out"].startswith("400 ") and line["verdict"] != "odd")
        )
    ]
    assert wrong == []


def test_a_size_out_of_bounds_is_told_as_one(read: list[dict[str, Any]]) -> None:
    sized = re.compile(r"hostile/(png|jpeg|webp|gif|bmp|tiff|ppm|pam)-([a-z]+-)?[0-9]+g?x[0-9]+g?")
    told = [line for line in read if sized.fullmatch(line["name"])]
    small = [line for line in told if re.search("-0x0$", line["name"])]
    assert len(told) - len(small) >= 36
    other = [line for line in told if not line["came_out"].startswith("400 image_too_large")]
    assert other == small


def test_none_keeps_a_reader_busy(read: list[dict[str, Any]]) -> None:
    assert [line for line in read if line["cpu_s"] > 2] == []


def test_none_fills_the_memory(read: list[dict[str, Any]]) -> None:
    assert max(line["grown_mib"] for line in read) <= 64


def test_refusals_are_sentences_without_the_librarys_words(read: list[dict[str, Any]]) -> None:
    refused = [line["came_out"] for line in read if line["came_out"] != "picture"]
    assert all(sentence.endswith(".") and "`image`" in sentence for sentence in refused)
    assert not [sentence for sentence in refused if "0x" in sentence or "Error" in sentence]


def test_many_threads_read_what_one_reads() -> None:
    some = all_cases()[:220]

    def outcome(data: bytes) -> bytes:
        try:
            return decode(data, _BOUNDS, "image").rgb.tobytes()
        except Fault as fault:
            return fault.message.encode()

    alone = [outcome(case.data) for case in some]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(outcome, [case.data for case in some] * 2))
    assert together == alone * 2
