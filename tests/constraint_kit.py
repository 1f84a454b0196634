"""What tests of demanded forms share: the real model's vocabulary, and walks through a form."""

import functools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chassis.errors import Fault, Reason
from services.llm.constraint import Constraint
from services.llm.grammars import Grammars
from services.llm.llama_api import Model, Vocabulary
from services.llm.values import ConstraintKind, OutputConstraint

REAL_MODEL = Path(__file__).parents[1] / "models" / "smollm2-135m-instruct-q4_1.gguf"
_CLOSING = (b'"', b"}", b"]")
_WILD_STEPS = 60
_MOST_STEPS = 2000


@functools.cache
def vocabulary() -> Vocabulary:
    return Model(str(REAL_MODEL), vocabulary_only=True).vocabulary


@functools.cache
def grammars() -> Grammars:
    return Grammars(vocabulary())


@functools.cache
def texts() -> list[bytes]:
    return [form.text for form in vocabulary().forms()]


@functools.cache
def closing() -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Tokens that bring an answer in JSON nearer to its end, if one has luck."""
    return np.array([text in _CLOSING for text in texts()])


def schema_form(schema: Any) -> OutputConstraint:
    return OutputConstraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))


def held_to(schema: Any) -> Constraint:
    return grammars().compile(schema_form(schema))


def refusal(output: OutputConstraint, param: str = "response_format") -> str:
    with pytest.raises(Fault) as caught:
        grammars().compile(output, param)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.metadata == {"param": param}
    return str(caught.value)


def tokens_of(text: str) -> list[int]:
    return vocabulary()._tokenize(text.encode(), False)


def accepts(constraint: Constraint, text: str) -> bool:
    """Whether the whole text has the form."""
    walker = constraint.copy()
    for token in tokens_of(text):
        if not walker.allows(token):
            return False
        walker.accept(token)
    return walker.may_end


def walk(constraint: Constraint, seed: int) -> bytes:
    """An answer of allowed tokens, chosen wildly at first, later such that it ends."""
    chance, answer = random.Random(seed), b""
    for step in range(_MOST_STEPS):
        if constraint.over:
            return answer
        allowed = constraint.mask()
        ends = [int(t) for t in np.flatnonzero(allowed) if int(t) in constraint._ends]
        if ends and (chance.random() < 0.2 or step > _WILD_STEPS):
            constraint.accept(ends[0])
            continue
        allowed[ends] = False
        nearer = allowed & closing()
        if nearer.any() and (step > _WILD_STEPS or chance.random() < 0.2):
            allowed = nearer
        token = int(chance.choice(np.flatnonzero(allowed).tolist()))
        constraint.accept(token)
        answer += texts()[token]
    raise AssertionError(f"no end after {_MOST_STEPS} tokens: {answer[:500]!r}")
