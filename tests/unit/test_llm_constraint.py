"""Answers held to a form: whatever is allowed has it, and one token and the mask agree."""

import json
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from chassis.errors import Fault
from services.llm.grammars import Grammars
from services.llm.llama_api import TokenForm
from services.llm.values import ConstraintKind, OutputConstraint
from tests.constraint_kit import (
    accepts,
    grammars,
    held_to,
    refusal,
    schema_form,
    texts,
    tokens_of,
    vocabulary,
    walk,
)

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", None]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SPACES = tokens_of("                ")

# The vocabulary has no tokens for the rarest bytes of longer characters.
words = st.text(st.characters(max_codepoint=0x2FF), max_size=5)

leaves = st.one_of(
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
        st.integers(0, 3),
        st.integers(0, 8),
    ),
    st.builds(
        lambda least, more: {"type": "integer", "minimum": least, "maximum": least + more},
        st.integers(-1000, 1000),
        st.integers(0, 500),
    ),
    st.just({"type": "number", "exclusiveMinimum": 0, "maximum": 10}),
    st.just({"type": "string", "pattern": "^[a-c]{1,4}$"}),
    st.just({"type": ["boolean", "null"]}),
    st.just({"type": "integer", "multipleOf": 7}),
    st.builds(
        lambda values: {"enum": values},
        st.lists(words | st.integers(-9, 9) | st.none(), min_size=1, max_size=4),
    ),
    st.builds(lambda value: {"const": value}, words | st.booleans()),
)


@st.composite
def objects(draw: st.DrawFn, parts: st.SearchStrategy[Any]) -> dict[str, Any]:
    named = draw(st.dictionaries(words, parts, max_size=3))
    required = [name for name in named if draw(st.booleans())]
    others = draw(st.just(False) | parts)
    return {
        "type": "object",
        "properties": named,
        "required": required,
        "additionalProperties": others,
    }


schemas = st.recursive(
    leaves,
    lambda parts: st.one_of(
        objects(parts),
        st.builds(
            lambda items, least, more: {
                "type": "array",
                "items": items,
                "minItems": least,
                "maxItems": least + more,
            },
            parts,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(parts, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(schemas, st.integers(0, 2**32))
def test_a_walk_through_a_schema_is_json_that_fulfils_it(schema: Any, seed: int) -> None:
    answer = json.loads(walk(held_to(schema), seed))
    Draft202012Validator(schema).validate(answer)


@pytest.mark.parametrize("seed", range(5))
def test_a_walk_through_any_object_is_a_json_object(seed: int) -> None:
    constraint = grammars().compile(OutputConstraint(ConstraintKind.JSON_OBJECT))
    assert isinstance(json.loads(walk(constraint, seed)), dict)


@settings(max_examples=30, deadline=None)
@given(schemas, st.integers(0, 2**32))
def test_the_mask_and_the_single_check_agree(schema: Any, seed: int) -> None:
    constraint, chance = held_to(schema), np.random.default_rng(seed)
    for _ in range(15):
        logits = np.zeros(vocabulary().size, np.float32)
        constraint.forbid(logits)
        open_ = np.flatnonzero(logits == 0)
        sample = {*chance.choice(len(logits), 40).tolist(), *chance.choice(open_, 20).tolist()}
        sample |= set(range(20))  # control tokens
        assert [constraint.allows(t) for t in sample] == [bool(logits[t] == 0) for t in sample]
        assert np.isin(logits, (0, -np.inf)).all()
        constraint.accept(int(chance.choice(open_)))
        if constraint.over:
            break


@settings(max_examples=30, deadline=None)
@given(schemas, st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6))
def test_a_rollback_restores_what_was_allowed(
    schema: Any, seed: int, before: int, behind: int
) -> None:
    constraint, chance = held_to(schema), np.random.default_rng(seed)

    def go(steps: int) -> int:
        for done in range(steps):
            if constraint._ended:
                return done
            allowed = np.flatnonzero(constraint.mask())
            constraint.accept(int(chance.choice(allowed)))
        return steps

    go(before)
    if constraint.over:
        return
    allowed, may_end = constraint.mask(), constraint.may_end
    constraint.rollback(go(behind))
    assert (constraint.mask() == allowed).all()
    assert (constraint.may_end, constraint.over) == (may_end, False)


def test_an_answer_is_over_when_nothing_can_follow() -> None:
    constraint = held_to(PERSON)
    for token in tokens_of('{"name": "Ann", "age": 7}'):
        assert not constraint.over
        assert not constraint.may_end
        constraint.accept(token)
    assert constraint.over
    assert constraint.may_end
    assert not constraint.allows(tokens_of(" ")[0])
    ends = [t for t, form in enumerate(vocabulary().forms()) if form.ends]
    assert np.flatnonzero(constraint.mask()).tolist() == ends
    assert len(ends) > 1
    for end in ends:
        assert constraint.allows(end)
    constraint.accept(ends[1])
    assert constraint.over
    assert not constraint.allows(ends[0])
    assert not constraint.mask().any()
    constraint.rollback(2)
    assert not constraint.over


def test_control_tokens_are_not_text() -> None:
    constraint = held_to({"type": "string"})
    constraint.accept(tokens_of('"')[0])
    special = [t for t, form in enumerate(vocabulary().forms()) if form.special]
    assert len(special) == 17
    assert not constraint.mask()[special].any()
    assert not any(constraint.allows(token) for token in special)
    assert accepts(held_to({"type": "string"}), '"<|im_end|>"')  # the same as plain text


def test_user_defined_tokens_are_text() -> None:
    forms = [TokenForm(bytes([byte]), False, False) for byte in range(256)]
    forms += [TokenForm(b"<end>", True, True), TokenForm(b"<tool>", False, False)]
    constraint = Grammars(_Forms(forms)).compile(OutputConstraint(ConstraintKind.REGEX, "<tool>a"))
    assert np.flatnonzero(constraint.mask()).tolist() == [ord("<"), 257]
    constraint.accept(257)
    constraint.accept(ord("a"))
    assert constraint.allows(256)


def test_logits_beyond_the_vocabulary_are_forbidden() -> None:
    forms = [TokenForm(bytes([byte]), False, byte == 0) for byte in range(100)]
    constraint = Grammars(_Forms(forms)).compile(OutputConstraint(ConstraintKind.REGEX, "a"))
    logits = np.zeros(128, np.float32)
    constraint.forbid(logits)
    assert np.flatnonzero(logits == 0).tolist() == [ord("a")]
    assert not constraint.allows(100)
    assert not constraint.allows(-1)


def test_a_character_that_no_token_writes_is_a_dead_end_and_said_so() -> None:
    forms = [TokenForm(bytes([byte]), False, byte == 0) for byte in range(100)]
    constraint = Grammars(_Forms(forms)).compile(OutputConstraint(ConstraintKind.REGEX, "<z"))
    constraint.accept(ord("<"))
    with pytest.raises(Fault, match="No token of this model can go on"):
        constraint.forbid(np.zeros(128, np.float32))


def test_a_token_that_was_not_allowed_is_refused_and_harmless() -> None:
    constraint = held_to(PERSON)
    before = constraint.mask()
    with pytest.raises(Fault, match=r"left its form.*`response_format`"):
        constraint.accept(tokens_of("hello")[0])
    assert (constraint.mask() == before).all()


def test_blanks_between_the_parts_are_bounded() -> None:
    constraint = held_to(PERSON)
    constraint.accept(tokens_of("{")[0])
    constraint.accept(tokens_of("\n")[0])
    count = 0
    while constraint.allows(tokens_of(" ")[0]):
        constraint.accept(tokens_of(" ")[0])
        count += 1
    assert count == 64
    assert not constraint.allows(tokens_of("\n")[0])
    assert accepts(held_to(PERSON), '{\n  "name": "Ann",\n  "age": 7\n}')


def test_copies_go_their_own_ways() -> None:
    one = held_to({"enum": ["ab", "cd"]})
    other = one.copy()
    one.accept(tokens_of('"')[0])
    assert other.allows(tokens_of('"')[0])
    assert not one.allows(tokens_of('"')[0])


def test_what_was_compiled_is_kept_within_bounds_and_starts_afresh() -> None:
    forms = [TokenForm(bytes([byte]), False, byte == 0) for byte in range(256)]
    small = Grammars(_Forms(forms), kept=2, kept_bytes=200)
    words = [OutputConstraint(ConstraintKind.REGEX, letter * 50) for letter in "abc"]
    small.compile(words[0]).accept(ord("a"))
    first = small._kept[words[0]]
    assert small.compile(words[0]).allows(ord("a"))
    assert small._kept[words[0]] is first
    small.compile(words[1])
    small.compile(words[0])
    small.compile(words[2])
    assert list(small._kept) == [words[0], words[2]]
    assert small._bytes == 100
    small.compile(OutputConstraint(ConstraintKind.REGEX, "d" * 180))
    assert len(small._kept) == 1
    small.compile(OutputConstraint(ConstraintKind.REGEX, "e" * 300))
    assert (len(small._kept), small._bytes) == (0, 0)


def test_the_vocabulary_is_looked_through_once_by_many_threads() -> None:
    forms = _Forms([TokenForm(bytes([byte]), False, byte == 0) for byte in range(256)])
    many = Grammars(forms)
    form = OutputConstraint(ConstraintKind.REGEX, "a+")
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(many.compile(form).allows(ord("a"))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [True] * 8
    assert forms.asked == 1


def test_a_form_too_complex_in_mid_answer_is_the_callers_mistake() -> None:
    grammar = 'root ::= "a" root | ""'  # right recursion piles up
    constraint = grammars().compile(OutputConstraint(ConstraintKind.GRAMMAR, grammar), "grammar")
    token = tokens_of("a")[0]

    def go_on() -> None:
        for _ in range(5000):
            constraint.accept(token)

    with pytest.raises(Fault, match="too complex") as caught:
        go_on()
    assert caught.value.metadata == {"param": "grammar"}


@pytest.mark.parametrize(
    ("expression", "fits", "not_"),
    [
        ("[0-9]{3}-[0-9]{4}", "555-1234", "555-123"),
        ("^(yes|no)$", "yes", "maybe"),
        ("(?i)ok", "oK", "o"),
        ("a/b", "a/b", "a"),
        (r"\d+\n", "12\n", "12"),
    ],
)
def test_a_regular_expression_holds_the_whole_answer(expression: str, fits: str, not_: str) -> None:
    constraint = grammars().compile(OutputConstraint(ConstraintKind.REGEX, expression))
    assert accepts(constraint, fits)
    assert not accepts(constraint, not_)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("(", "unclosed group"),
        ("(?=a)b", "look-around"),
        ("a{1000}{1000}", "positions"),
        ("x" * 9000, "longer than"),
        (r"a[^\s\S]", "nothing can fulfil it"),
    ],
)
def test_expressions_that_cannot_be_used_are_refused(expression: str, said: str) -> None:
    assert said in refusal(OutputConstraint(ConstraintKind.REGEX, expression), "regex")


def test_the_houses_own_grammar_may_hold_schemas() -> None:
    source = f'start: "<tool_call>" %json {json.dumps(PERSON)} "</tool_call>"'
    constraint = grammars().compile(OutputConstraint(ConstraintKind.LARK, source), "tools")
    assert accepts(constraint, '<tool_call>{"name": "a", "age": 1}</tool_call>')
    assert not accepts(constraint, '<tool_call>{"name": "a"}</tool_call>')
    assert "unknown name" in refusal(OutputConstraint(ConstraintKind.LARK, "start: x"), "tools")


def test_a_model_without_an_end_cannot_be_held_to_a_form() -> None:
    endless = Grammars(_Forms([TokenForm(b"a", False, False)]))
    with pytest.raises(Fault, match="no token that ends"):
        endless.compile(schema_form({}))


def test_every_token_has_its_bytes() -> None:
    assert texts()[0] == b"<|endoftext|>"
    assert b"".join(texts()[t] for t in tokens_of("Grüße, 世界!")) == "Grüße, 世界!".encode()


class _Forms:
    """A vocabulary made up for a test."""

    def __init__(self, forms: list[TokenForm]) -> None:
        self._forms, self.asked = forms, 0

    def forms(self) -> list[TokenForm]:
        self.asked += 1
        return self._forms
