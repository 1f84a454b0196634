"""A form is kept where it applies: what is thought is free, unless the form knows of thoughts."""

from typing import Any

import numpy as np
import pytest

from services.llm.choosing import Chooser, Logits
from services.llm.values import GenerateParams


class OnlyTwo:
    """A form of the token 2 alone, which remembers what it was told."""

    over = False

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def allows(self, token: int) -> bool:
        return token == 2

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def forbid(self, logits: Logits) -> None:
        logits[[0, 1, 3]] = -np.inf

    def copy(self) -> "OnlyTwo":
        return OnlyTwo()


class Best:
    """Samples the likeliest token, and remembers what was accepted."""

    looks_at_few = False

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def choose(self, logits: Logits, _candidates: Any) -> int:
        return int(logits.argmax())

    def accept(self, token: int) -> None:
        self.accepted.append(token)


class Row:
    """One row of logits, of which the token 1 is the likeliest."""

    def logits(self, _row: int) -> Logits:
        return np.array([0.0, 3.0, 1.0, 2.0], np.float32)

    def sample(self, sampler: Best, row: int) -> int:
        token = sampler.choose(self.logits(row), None)
        sampler.accept(token)
        return token


@pytest.mark.parametrize(
    ("thinking", "form_thinks", "token"),
    [(False, False, 2), (True, False, 1), (True, True, 2), (False, True, 2)],
)
def test_thoughts_are_held_to_a_form_that_knows_them_only(
    thinking: bool, form_thinks: bool, token: int
) -> None:
    form, sampler, row = OnlyTwo(), Best(), Row()
    nothing: Any = None
    stand_in: Any = sampler
    context: Any = row
    chooser = Chooser(GenerateParams(), nothing, stand_in, nothing, form, form_thinks=form_thinks)
    assert chooser.choose(context, 0, thinking=thinking).token == token
    assert sampler.accepted == [token]
    assert form.accepted == ([2] if token == 2 else [])
