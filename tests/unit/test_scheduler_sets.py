"""The set language: its meaning, against an oracle that expands everything, and what it refuses."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core import sets
from services.scheduler.core.sets import Cover, SetError, parse_sets

MODELS = ["coder", "chat-lite", "flux", "tts", "whisper", "a", "b", "c"]
HOUSE = {"images": "flux & (whisper | tts)", "work": "coder | (chat-lite & +images)"}


def fault(text: str, **others: str) -> str:
    with pytest.raises(SetError) as caught:
        parse_sets({"s": text, **others}, MODELS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("residents", "allowed"),
    [
        ("", True),
        ("coder", True),
        ("flux whisper", True),
        ("flux tts chat-lite", True),
        ("whisper tts", False),
        ("flux whisper tts", False),
        ("coder flux", False),
        ("coder chat-lite", False),
    ],
)
def test_residents_may_be_part_of_one_combination(residents: str, allowed: bool) -> None:
    assert parse_sets(HOUSE, MODELS).allows(residents.split()) is allowed


def test_without_sets_everything_is_allowed() -> None:
    rules = parse_sets({}, MODELS)
    assert rules.allows(MODELS)
    assert rules.largest(MODELS, "a") == [frozenset(MODELS)]


def test_models_that_no_set_names_live_beside_anybody() -> None:
    rules = parse_sets({"s": "a | b"}, MODELS)
    assert rules.allows(["a", "coder", "flux"])
    assert not rules.allows(["a", "b", "coder"])
    assert rules.largest(["a", "b", "coder"], "flux") == [
        frozenset({"a", "coder", "flux"}),
        frozenset({"b", "coder", "flux"}),
    ]


def test_together_binds_tighter_than_either() -> None:
    rules = parse_sets({"s": "a & b | c"}, MODELS)
    assert rules.allows(["a", "b"])
    assert not rules.allows(["a", "c"])
    assert parse_sets({"s": "a & (b | c)"}, MODELS).allows(["a", "c"])


def test_largest_keeps_the_model_asked_for() -> None:
    rules = parse_sets(HOUSE, MODELS)
    assert rules.largest(["whisper", "tts", "coder"], "flux") == [
        frozenset({"flux", "tts"}),
        frozenset({"flux", "whisper"}),
    ]
    assert rules.largest(["whisper", "tts", "flux"], "coder") == [frozenset({"coder"})]


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, 'expected a model, "+" and a set, or "(", found the end'),
        ("a & ()", 6, 'or "(", found ")"'),
        ("a &", 4, "found the end"),
        ("a & | b", 5, 'found "|"'),
        ("| a", 1, 'found "|"'),
        ("a b", 3, 'expected "&", "|" or the end, found "b"'),
        ("a\t&\n(b | c", 11, 'the ")" of the "(" at column 5, found the end'),
        ("a)", 2, 'expected "&", "|" or the end, found ")"'),
        ("a & fluxx", 5, 'expected the name of a model, found "fluxx" (did you mean "flux"?)'),
        ("a & +othr", 5, 'expected the name of a set, found "+othr" (did you mean "other"?)'),
        ("a & + other", 6, 'right after the "+"'),
        ("a, b", 2, "found ','"),
        ("(" * 65 + "a" + ")" * 65, 65, "at most 64 parentheses inside one another"),
        ("a" + " " * 4096, 4097, "at most 4,096 characters"),
    ],
)
def test_what_cannot_be_read_names_set_column_and_what_was_expected(
    text: str, column: int, says: str
) -> None:
    message = fault(text, other="a")
    assert message.startswith(f'set "s", column {column}: expected ')
    assert says in message


def test_64_parentheses_and_4096_characters_are_read() -> None:
    text = "(" * 64 + "a" + ")" * 64
    assert parse_sets({"s": text + " " * (4_096 - len(text))}, MODELS).allows(["a"])


def test_a_circle_is_named_in_order() -> None:
    message = fault("a | +t", t="b & +u", u="c & (a | +s)")
    assert message == (
        'set "s", column 5: expected a set that does not inline this one,'
        " found the circle s > t > u > s"
    )
    assert "circle s > s" in fault("+s")


def test_sets_are_bounded_in_number_and_together() -> None:
    with pytest.raises(SetError, match=r'set "256", column 1: .* there may be 256'):
        parse_sets({str(number): "a" for number in range(257)}, MODELS)
    with pytest.raises(SetError, match=r'set "16", column 1: .* at most 65,536 characters'):
        parse_sets({str(number): "a".ljust(4_096) for number in range(17)}, MODELS)


def test_a_long_chain_of_inlining_is_read_and_answered() -> None:
    chain = {f"s{number}": f"+s{number + 1} & (a | +s{number + 1})" for number in range(255)}
    rules = parse_sets({**chain, "s255": "b | c"}, MODELS)
    assert rules.allows(["a", "b", "c"])
    cover = Cover(rules, ["a", "b", "c"])
    assert not cover.cut
    assert cover.handled < 10_000


TWELVE = [[f"m{group}-{number}" for number in range(12)] for group in range(12)]
ALL_TWELVE = [model for group in TWELVE for model in group]
TWELVE_JOINED = " & ".join("(" + " | ".join(group) + ")" for group in TWELVE)


@pytest.mark.parametrize("apiece", [1, 2, 3, 4])
def test_twelve_alternatives_joined_twelve_ways_are_not_expanded(apiece: int) -> None:
    """12^12 combinations; what is handled depends on the residents alone."""
    rules = parse_sets({"all": TWELVE_JOINED}, ALL_TWELVE)
    residents = [model for group in TWELVE for model in group[:apiece]][:16]
    groups = [sum(model in group for model in residents) for group in TWELVE]
    combinations_there_are = 1
    for count in groups[1:]:
        combinations_there_are *= max(1, count)
    cover = Cover(rules, residents, residents[0])
    assert not cover.cut
    assert cover.handled <= 2_000
    assert len(rules.largest(residents, residents[0])) == combinations_there_are


def test_beyond_its_bounds_a_question_is_answered_too_strictly_but_answered() -> None:
    """36 residents in groups of three: 3^12 maximal combinations, of which WIDTH are kept."""
    rules = parse_sets({"all": TWELVE_JOINED}, ALL_TWELVE)
    residents = [model for group in TWELVE for model in group[:3]]
    cover = Cover(rules, residents, residents[5])
    assert cover.cut
    assert cover.handled < 2 * sets.HANDLED
    found = rules.largest(residents, residents[5])
    assert len(found) == sets.WIDTH
    assert found == rules.largest(residents[::-1], residents[5])
    for models in found:
        assert residents[5] in models
        assert all(sum(model in models for model in group) == 1 for group in TWELVE)


def test_a_hostile_configuration_costs_a_bounded_count() -> None:
    """Every set joins as many overlapping choices as its length allows."""
    names = [chr(ord("a") + number) for number in range(26)]
    texts = {}
    for seed in range(16):
        clauses = []
        for clause in range(100):
            first = [names[(seed * 7 + clause * 5 + step * step * 3) % 26] for step in range(18)]
            clauses.append(
                "(" + "|".join(map("&".join, zip(first[::2], first[1::2], strict=True))) + ")"
            )
        texts[f"s{seed}"] = "&".join(clauses)[:4_000].rpartition("&(")[0]
    rules = parse_sets(texts, names)
    cover = Cover(rules, names, "k")
    per_part = sets.NARROW * 32 * (sets.NARROW + 2)
    assert cover.handled < 3 * sets.HANDLED + per_part * len(rules.parts)
    assert rules.largest(names, "k") != []


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from("abcdefg"))
    operands = draw(st.lists(expressions(depth - 1), min_size=1, max_size=3))
    return "(" + draw(st.sampled_from(["&", " | "])).join(operands) + ")"


def expand(text: str) -> set[frozenset[str]]:
    """Every combination, by Python's own parser: `&` and `|` bind there as here."""

    class Family:
        def __init__(self, members: set[frozenset[str]]) -> None:
            self.members = members

        def __and__(self, other: "Family") -> "Family":
            return Family({one | two for one in self.members for two in other.members})

        def __or__(self, other: "Family") -> "Family":
            return Family(self.members | other.members)

    letters = {letter: Family({frozenset(letter)}) for letter in "abcdefg"}
    family = eval(text, {"__builtins__": {}}, letters)
    assert isinstance(family, Family)
    return family.members


@given(st.lists(expressions(), min_size=1, max_size=3), st.sets(st.sampled_from("abcdefgxy")))
def test_it_answers_as_the_expansion_does(texts: list[str], residents: set[str]) -> None:
    inlined = [*texts, f"{texts[0]} & ({texts[-1]} | a)"]
    given_texts = {f"s{number}": text for number, text in enumerate(texts)}
    given_texts["last"] = f"+s0 & (+s{len(texts) - 1} | a)"
    rules = parse_sets(given_texts, "abcdefgxy")
    family = set().union(*map(expand, inlined))
    named = set().union(*family)

    def allowed(some: frozenset[str]) -> bool:
        return any(some & named <= combination for combination in family)

    assert rules.allows(residents) is allowed(frozenset(residents))
    for must in "ax":
        everyone = residents | {must}
        subsets = [
            frozenset(some) | {must}
            for size in range(len(everyone))
            for some in combinations(sorted(everyone - {must}), size)
        ]
        good = {some for some in subsets if allowed(some)}
        largest = {some for some in good if not any(some < other for other in good)}
        if must in named or must == "x":
            assert set(rules.largest(residents, must)) == largest
            assert len(rules.largest(residents, must)) == len(largest)
