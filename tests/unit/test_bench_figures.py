"""Pairing of measured answers, and the turns that the ways take."""

import pytest

from bench.figures import Shot, all_paired, spread
from bench.question import Question
from bench.rounds import take_turns

QUESTION = Question("model", "text", 8)


def test_noise_that_hits_a_whole_round_cancels_out() -> None:
    bare = [Shot(1.0, 100.0), Shot(9.0, 50.0), Shot(2.0, 80.0)]
    house = [Shot(first + 2.0, speed * 0.9) for first, speed in bare]
    figures = all_paired({"bare": bare, "house": house}, "bare")
    assert figures["house"].added_ms == spread([2.0, 2.0, 2.0])
    assert figures["house"].lost_percent.median == pytest.approx(10.0)
    assert figures["house"].speed_times_bare == pytest.approx(0.9)
    assert figures["house"].first_times_bare == pytest.approx(2.0)  # of 3, 11/9 and 2
    assert figures["bare"].added_ms.median == figures["bare"].lost_percent.median == 0.0


def test_a_round_without_its_partner_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        all_paired({"bare": [Shot(1, 1)] * 3, "house": [Shot(1, 1)] * 2}, "bare")


class Noted:
    def __init__(self, name: str, asked: list[str]) -> None:
        self.name = name
        self._asked = asked

    async def ask(self, question: Question) -> Shot:
        self._asked.append(self.name)
        return Shot(len(self._asked), 1.0)


async def test_each_way_is_first_in_turn_and_warm_up_does_not_count() -> None:
    asked: list[str] = []
    done: list[None] = []
    ways = [Noted(name, asked) for name in "abc"]
    shots = await take_turns(ways, QUESTION, rounds=3, warm_up=1, done=lambda: done.append(None))
    assert "".join(asked) == "cab" + "abc" + "bca" + "cab"
    assert len(done) == 4
    assert [shot.first_ms for shot in shots["a"]] == [4, 9, 11]
