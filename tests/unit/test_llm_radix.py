"""The radix tree against a list of sequences that is searched one by one."""

from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.radix import Match, RadixTree

TOKENS = st.lists(st.integers(0, 2), max_size=9)
DEED = st.tuples(st.sampled_from(["add", "away", "remove", "back"]), st.integers(0, 5), TOKENS)


def common(first: list[int], then: list[int]) -> int:
    at = 0
    while at < min(len(first), len(then)) and first[at] == then[at]:
        at += 1
    return at


class Oracle:
    """What the tree should say."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[list[int], bool]] = {}

    def longest(self, tokens: list[int], *, at_hand: bool) -> int:
        alike = [common(run, tokens) for run, here in self.known.values() if here == at_hand]
        return max(alike, default=0)


@given(st.lists(DEED, max_size=30), st.lists(TOKENS, min_size=1, max_size=5))
def test_it_finds_what_a_search_of_all_finds(
    deeds: list[tuple[str, int, list[int]]], questions: list[list[int]]
) -> None:
    tree, oracle = RadixTree[int](), Oracle()
    for deed, key, tokens in deeds:
        do(tree, oracle, deed, key, tokens)
        assert len(tree) == len(oracle.known)
        for question in questions:
            for at_hand, match in zip((True, False), tree.longest(question), strict=True):
                check(oracle, question, match, at_hand=at_hand)
        for known in oracle.known:
            assert sorted(tree.covered(known)) == sorted(covered(oracle, known))


def do(tree: RadixTree[int], oracle: Oracle, deed: str, key: int, tokens: list[int]) -> None:
    if deed == "add":
        tree.add(key, tokens)
        oracle.known[key] = (tokens, True)
    elif deed == "remove":
        tree.remove(key)
        oracle.known.pop(key, None)
    elif key in oracle.known:
        tree.move(key, at_hand=deed == "back")
        oracle.known[key] = (oracle.known[key][0], deed == "back")


def check(oracle: Oracle, question: list[int], match: Match[int] | None, *, at_hand: bool) -> None:
    longest = oracle.longest(question, at_hand=at_hand)
    if match is None:
        assert longest == 0
        return
    tokens, here = oracle.known[match.key]
    assert here == at_hand
    assert match.tokens == longest == common(tokens, question)


def covered(oracle: Oracle, key: int) -> list[int]:
    mine = oracle.known[key][0]
    others = ((k, tokens) for k, (tokens, _) in oracle.known.items() if k != key)
    return [other for other, tokens in others if mine[: len(tokens)] == tokens]


def test_of_equal_matches_the_latest_is_taken() -> None:
    tree = RadixTree[str]()
    for key in ("first", "second"):
        tree.add(key, [1, 2, 3])
    assert tree.longest([1, 2, 9])[0] == Match("second", 2)
    tree.move("second", at_hand=False)
    assert tree.longest([1, 2, 9]) == (Match("first", 2), Match("second", 2))
