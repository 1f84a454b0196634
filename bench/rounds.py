"""The ways of asking take turns, each first as often as the others."""

from collections.abc import Callable, Sequence
from typing import Protocol

from bench.figures import Shot
from bench.question import Question


class Way(Protocol):
    """A way to have a question answered."""

    @property
    def name(self) -> str:
        """As the table has it."""

    async def ask(self, question: Question) -> Shot:
        """One answer, timed."""


async def take_turns(
    ways: Sequence[Way],
    question: Question,
    *,
    rounds: int,
    warm_up: int,
    done: Callable[[], None],
) -> dict[str, list[Shot]]:
    """`rounds` answers by each way, after `warm_up` rounds that do not count."""
    shots: dict[str, list[Shot]] = {way.name: [] for way in ways}
    for number in range(-warm_up, rounds):
        turn = number % len(ways)
        for way in (*ways[turn:], *ways[:turn]):
            shot = await way.ask(question)
            if number >= 0:
                shots[way.name].append(shot)
        done()
    return shots
