"""The `metrics` of an answer."""

import msgspec
import pytest

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.timings import timings_of

SERVED = Served("m", 5, queue_wait_ms=7)
SPENT = pb.Timings(
    tokenize_ms=0.5, engine_wait_ms=1.25, prefill_ms=20, first_token_ms=30, decode_ms=200
)


def test_the_wait_for_a_turn_stands_before_the_engines_own_times() -> None:
    finish = pb.Finish(usage=pb.Usage(completion_tokens=5), timings=SPENT)
    assert msgspec.to_builtins(timings_of(SERVED, finish)) == {
        "queue_wait_ms": 7,
        "tokenize_ms": 0.5,
        "engine_wait_ms": 1.25,
        "prefill_ms": 20,
        "first_token_ms": 30,
        "decode_ms": 200,
        "tokens_per_second": 20,
    }


@pytest.mark.parametrize(("tokens", "decode_ms"), [(0, 200), (1, 200), (5, 0)])
def test_without_decoding_there_is_no_speed(tokens: int, decode_ms: float) -> None:
    usage, spent = pb.Usage(completion_tokens=tokens), pb.Timings(decode_ms=decode_ms)
    assert timings_of(SERVED, pb.Finish(usage=usage, timings=spent)).tokens_per_second == 0


def test_speculation_is_counted_where_there_is_some_even_without_a_hit() -> None:
    finish = pb.Finish(speculation=pb.Speculation(drafted_tokens=4))
    told = msgspec.to_builtins(timings_of(SERVED, finish))["speculation"]
    assert told == {"drafted_tokens": 4, "accepted_tokens": 0, "saved_calls": 0}
