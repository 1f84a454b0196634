"""What the next native call works on. Pure: the state of the sequences in, rows out.

Each running sequence owes the model the tokens that are in its text but not yet in the KV cache.
One owed token is a decode row; more are a prompt that still has to be prefilled.

The plan, in this order:
 1. Every decoding sequence gets its row: a newcomer never costs a neighbour a token.
 2. What the batch has left goes to prefill, first come first served.
 3. While anybody decodes, prefill gets at most `chunk_tokens` of it: that bounds by how long the
    neighbours are held up. Nobody decodes: it gets the whole batch.

The clock, the native library and the requests' own state stay out. Both values are named tuples:
they are made for every sequence in every step, and those are the cheapest to make.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Demand(NamedTuple):
    """A sequence and how many of its tokens are not in the KV cache yet; at least one."""

    key: int
    owed_tokens: int


class Slice(NamedTuple):
    """The next `tokens` of a sequence. The last row wants logits when nothing is owed after it."""

    key: int
    tokens: int
    wants_logits: bool


def plan_step(
    demands: Sequence[Demand], *, batch_tokens: int, chunk_tokens: int
) -> tuple[Slice, ...]:
    """The rows of the next call, in batch order; `demands` come in order of arrival.

    At most `batch_tokens` rows; there are never more demands than that. Raises ValueError when
    there are, for then a decode row would have to starve.
    """
    if len(demands) > batch_tokens:
        raise ValueError(f"{len(demands)} sequences do not fit a batch of {batch_tokens}")
    plan = [Slice(demand.key, 1, True) for demand in demands if demand.owed_tokens == 1]  # 1
    left = batch_tokens - len(plan)
    if plan:
        left = min(left, chunk_tokens)  # 3
    for demand in demands:  # 2
        if demand.owed_tokens > 1 and left > 0:
            tokens = min(left, demand.owed_tokens)
            plan.append(Slice(demand.key, tokens, tokens == demand.owed_tokens))
            left -= tokens
    return tuple(plan)
