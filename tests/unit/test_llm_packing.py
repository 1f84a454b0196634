"""Which texts a call holds: nobody is passed over, and it is as full as the next text allows."""

from collections import deque
from itertools import pairwise, zip_longest

from hypothesis import given
from hypothesis import strategies as st

from services.llm.packing import Pending, next_call

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def calls_of(
    requests: list[list[int]], batch_tokens: int, most_texts: int
) -> list[list[tuple[int, int]]]:
    queue = deque(Pending(key, lengths) for key, lengths in enumerate(requests))
    calls = []
    while call := next_call(queue, batch_tokens, most_texts):
        calls.append([(pending.key, at) for pending, at in call])
    return calls


def test_requests_take_turns() -> None:
    assert calls_of([[4, 4, 4], [4], [4, 4]], 12, 9) == [
        [(0, 0), (1, 0), (2, 0)],
        [(0, 1), (2, 1), (0, 2)],
    ]


def test_a_text_that_does_not_fit_is_the_first_of_the_next_call() -> None:
    assert calls_of([[6, 1], [7], [1]], 12, 9) == [[(0, 0)], [(1, 0), (2, 0), (0, 1)]]


def test_a_text_longer_than_a_call_has_one_to_itself() -> None:
    assert calls_of([[1, 50, 1]], 12, 9) == [[(0, 0)], [(0, 1)], [(0, 2)]]


@given(st.lists(LENGTHS, max_size=6), st.integers(1, 60), st.integers(1, 8))
def test_every_text_goes_once_in_its_order_within_the_bounds(
    requests: list[list[int]], batch_tokens: int, most_texts: int
) -> None:
    calls = calls_of(requests, batch_tokens, most_texts)
    given_texts = [part for call in calls for part in call]
    for key, lengths in enumerate(requests):
        assert [at for k, at in given_texts if k == key] == list(range(len(lengths)))
    nothing: list[tuple[int, int]] = []
    for call, following in zip_longest(calls, calls[1:], fillvalue=nothing):
        used = sum(requests[key][at] for key, at in call)
        assert len(call) <= most_texts
        assert used <= batch_tokens or len(call) == 1
        if following and len(call) < most_texts:  # it was full
            key, at = following[0]
            assert used + requests[key][at] > batch_tokens


@given(st.lists(LENGTHS, min_size=2, max_size=6), st.integers(1, 60))
def test_between_two_texts_of_a_request_each_other_has_one_at_most(
    requests: list[list[int]], batch_tokens: int
) -> None:
    turns = [key for call in calls_of(requests, batch_tokens, 256) for key, _ in call]
    for key in range(len(requests)):
        at = [i for i, turn in enumerate(turns) if turn == key]
        for begin, end in pairwise(at):
            between = turns[begin + 1 : end]
            assert len(set(between)) == len(between)
