"""What the next native call works on. Pure: the state of the sequences in, rows out.

Each running sequence owes the model the tokens that are in its text but not yet in the KV cache.
One owed token is a decode row, which may bring guesses along; more are a prompt that still has to
be prefilled.

The plan, in this order:
 1. Every decoding sequence gets its row: a newcomer never costs a neighbour a token.
 2. Guesses get rows while the batch has them, first come first served: they are worth less than a
    sure token and more than a newcomer's prompt.
 3. What the batch has left goes to prefill, first come first served.
 4. While anybody decodes, prefill gets at most `chunk_tokens` of it: that bounds by how long the
    neighbours are held up. Nobody decodes: it gets the whole batch.

The clock, the native library and the requests' own state stay out. Both values are named tuples:
they are made for every sequence in every step, and those are the cheapest to make.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Demand(NamedTuple):
    """A sequence, how many of its tokens are not in the KV cache yet, at least one, and how many
    guesses follow a decode row.
    """

    key: int
    owed_tokens: int
    draft_tokens: int = 0


class Slice(NamedTuple):
    """The next `tokens` of a sequence; the last `outputs` rows of it want logits."""

    key: int
    tokens: int
    outputs: int


def plan_step(
    demands: Sequence[Demand], *, batch_tokens: int, chunk_tokens: int
) -> tuple[Slice, ...]:
    """The rows of the next call, in batch order; `demands` come in order of arrival.

    At most `batch_tokens` rows; there are never more demands than that. Raises ValueError when
    there are, for then a decode row would have to starve.
    """
    if len(demands) > batch_tokens:
        raise ValueError(f"{len(demands)} sequences do not fit a batch of {batch_tokens}")
    decoding = [demand for demand in demands if demand.owed_tokens == 1]  # 1
    left = batch_tokens - len(decoding)
    plan = []
    for demand in decoding:  # 2
        guesses = min(demand.draft_tokens, left)
        left -= guesses
        plan.append(Slice(demand.key, 1 + guesses, 1 + guesses))
    if decoding:
        left = min(left, chunk_tokens)  # 4
    for demand in demands:  # 3
        if demand.owed_tokens > 1 and left > 0:
            tokens = min(left, demand.owed_tokens)
            plan.append(Slice(demand.key, tokens, int(tokens == demand.owed_tokens)))
            left -= tokens
    return tuple(plan)
