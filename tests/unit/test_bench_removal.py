"""The removal bench: which of the rival's ways counts, what is judged, and that both sides write
with one encoder.
"""

import json
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from bench.removal.figures import Compared, Shot
from bench.removal.report import as_json
from bench.removal.work import WRITTEN
from imaging.encode import encode
from imaging.values import Encoding, Format, Picture


def shots(*walls_s: float) -> list[Shot]:
    return [Shot(4, wall_s, 2.0, 4096) for wall_s in walls_s]


def compared(least_ratio: float = 0.8) -> Compared:
    return Compared(
        "a size",
        least_ratio,
        {"engine": shots(2.0, 2.0, 8.0), "house": shots(4.0, 4.0, 4.0)},
        {"one": shots(4.0, 4.0, 4.0), "two": shots(2.0, 1.0, 4.0)},
    )


def test_the_fastest_of_the_rivals_ways_is_compared_with_round_by_round() -> None:
    found = compared()
    assert found.best_rival == "two"
    assert found.ratios("engine") == [1.0, 0.5, 0.5]
    assert found.ratio("engine") == 0.5


def test_each_of_our_ways_keeps_the_limit_by_itself() -> None:
    found = compared(least_ratio=0.5)
    assert [found.passes(name) for name in ("engine", "house")] == [True, True]
    assert found.all_pass
    slower = Compared("", 0.5, {**found.ours, "late": shots(9.0, 9.0, 9.0)}, found.theirs)
    assert slower.passes("engine")
    assert not slower.passes("late")
    assert not slower.all_pass


def test_rounds_without_a_partner_are_refused() -> None:
    lone = Compared("", 1.0, {"engine": shots(1.0)}, {"one": shots(1.0, 1.0)})
    with pytest.raises(ValueError, match="longer"):
        lone.ratio("engine")


def test_machines_are_told_everything_of_a_picture_each() -> None:
    house = [Shot(4, 4.0, None, 4096)]
    found = Compared("a size", 1.5, {"house": house}, {"one": shots(4.0)})
    told = json.loads(json.dumps(as_json([found])))
    assert told["passes"] is False
    (one,) = told["comparisons"]
    assert one["theirs"]["one"]["cpu_ms"] == 500.0
    assert one["ours"]["house"]["cpu_ms"] is None
    assert one["ours"]["house"]["answer_kib"] == 1.0
    assert one["ours"]["house"]["ratio"] == 1.0


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_both_sides_write_with_the_same_encoder_and_settings(kind: str) -> None:
    rgb = (np.arange(64 * 64 * 3) % 251).astype(np.uint8).reshape(64, 64, 3)
    alpha = np.tile(np.arange(64, dtype=np.uint8), (64, 1))
    rgb[alpha == 0] = 0
    ours = encode(Picture(rgb, alpha), Encoding(Format[kind.upper()])).data
    theirs = BytesIO()
    Image.fromarray(np.dstack([rgb, alpha])).save(theirs, kind.upper(), **WRITTEN[kind])
    assert theirs.getvalue() == ours
