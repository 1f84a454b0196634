"""Where the time of an answer went, as every dialect reports it: the extension object `metrics`.

The words are those of llm.v1, with the wait for a turn before them, which the engine knows nothing
of. Strict clients pass over the object; what a dialect calls it, and where it stands, is its own.
"""

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served

_DIGITS = 3


class SpeculationCounts(msgspec.Struct):
    """What guessing ahead saved."""

    drafted_tokens: int
    accepted_tokens: int
    saved_calls: int


class Timings(msgspec.Struct, omit_defaults=True):
    """Where the time went. Speculation is counted only where the model is configured to guess."""

    queue_wait_ms: float
    """For a turn, the load of the model included."""
    tokenize_ms: float
    engine_wait_ms: float
    """From arrival at the engine to the first decode step."""
    prefill_ms: float
    first_token_ms: float
    """From arrival at the engine to the first token."""
    decode_ms: float
    """From the first token to the last."""
    tokens_per_second: float
    """While decoding; 0 for an answer of one token, which is not decoded any further."""
    speculation: SpeculationCounts | None = None


def timings_of(served: Served, finish: pb.Finish) -> Timings:
    """Of one finished answer."""
    spent = finish.timings
    return Timings(
        queue_wait_ms=served.queue_wait_ms,
        tokenize_ms=round(spent.tokenize_ms, _DIGITS),
        engine_wait_ms=round(spent.engine_wait_ms, _DIGITS),
        prefill_ms=round(spent.prefill_ms, _DIGITS),
        first_token_ms=round(spent.first_token_ms, _DIGITS),
        decode_ms=round(spent.decode_ms, _DIGITS),
        tokens_per_second=_speed(finish),
        speculation=_speculation(finish),
    )


def _speed(finish: pb.Finish) -> float:
    # The first token comes with the prefill: decoding made the others.
    decoded, spent_ms = finish.usage.completion_tokens - 1, finish.timings.decode_ms
    return round(decoded * 1000 / spent_ms, _DIGITS) if decoded > 0 and spent_ms > 0 else 0.0


def _speculation(finish: pb.Finish) -> SpeculationCounts | None:
    if not finish.HasField("speculation"):
        return None
    told = finish.speculation
    return SpeculationCounts(told.drafted_tokens, told.accepted_tokens, told.saved_calls)
