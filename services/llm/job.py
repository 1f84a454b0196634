"""An answer in the decode loop: who reads it, what it holds there, and what it is chosen by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from services.llm.answer import Answer
from services.llm.choosing import Chooser
from services.llm.core.drafting import Governor
from services.llm.stream import AnswerStream
from services.llm.values import Tier


class Drafter(Protocol):
    """Guesses what comes next."""

    def guess(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `tokens`."""


@dataclass(slots=True, eq=False)
class Job:
    """One choice of one request."""

    answer: Answer
    stream: AnswerStream
    make_chooser: Callable[[], Chooser]
    """Called by the decode thread, when the first token is to be chosen."""
    scope: str = ""
    """Whose prefixes it may reuse, and who may reuse its."""
    drafter: Drafter | None = None
    governor: Governor | None = None
    followers: "list[Job]" = field(default_factory=list)
    """Further choices of the request: they begin when the prompt is in the cache."""

    cancelled: bool = False
    arrival: int = 0
    """Counts up; the later, the younger."""
    sequence: int = -1
    """Where it is in the KV cache; -1: it waits, or is parked."""
    prefix_key: int = -1
    """By which others know its beginning; -1: nothing of it is in the cache yet."""
    known_tokens: int = 0
    """How much of its prompt that is."""
    chooser: Chooser | None = None
    draft: list[int] = field(default_factory=list)
    parked_state: memoryview | None = None
    """Its cells in host memory; None or empty while parked: they are computed anew."""

    @property
    def tier(self) -> Tier:
        """How urgent it is; FREE where nobody says, as the scheduler has it."""
        return self.answer.params.tier or Tier.FREE

    def close(self) -> None:
        """Free what it chooses by."""
        if self.chooser is not None:
            self.chooser.close()
            self.chooser = None

    @property
    def most_guesses(self) -> int:
        """How many tokens to try behind its next one; not more than its limit leaves."""
        if self.governor is None or self.answer.owed_tokens != 1:
            return 0
        return max(0, min(self.governor.allowed(), self.answer.left_tokens - 1))


def guess_each(jobs: Sequence[Job]) -> None:
    """Set the `draft` of each job by its own drafter."""
    for job in jobs:
        most = job.most_guesses
        job.draft = job.drafter.guess(job.answer.tokens, most) if job.drafter and most else []
