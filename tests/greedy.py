"""Greedy answers with the two best candidates at every token, and how two of them may differ.

The same text computed in another batch, from a cached prefix or from a restored state goes through
other kernels, and sums come out a little different. Where the two best tokens are almost equally
likely, either may then be chosen, and from there on the texts are different ones.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from services.llm.engine_llama import LlamaEngine
from services.llm.values import Chunk, GenerateParams, Prompt, SamplingParams, TokenLogprob, Usage

NEAR = 0.05
"""Logits that lie closer together than this may change places."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """An answer: its tokens, how far the second best lay behind at each, and the usage."""

    tokens: list[int]
    gaps: list[float]
    usage: Usage


async def greedy(engine: LlamaEngine, prompt: Prompt, tokens: int) -> Greedy:
    params = GenerateParams(
        tokens, sampling=SamplingParams(temperature=0), ignore_eos=True, logprobs=True,
        top_logprobs=2,
    )  # fmt: skip
    async with aclosing(engine.generate(prompt, params)) as chunks:
        return await read(chunks)


async def read(chunks: AsyncIterator[Chunk]) -> Greedy:
    told: list[TokenLogprob] = []
    usage = None
    async for chunk in chunks:
        told += chunk.logprobs
        usage = chunk.finish.usage if chunk.finish else usage
    assert usage is not None
    return Greedy(
        [one.chosen.token for one in told],
        [one.top[0].logprob - one.top[1].logprob for one in told],
        usage,
    )


def parted_at(first: Greedy, then: Greedy) -> int | None:
    """Where the answers part; None: they are the same. Fails where they must not part."""
    assert len(first.tokens) == len(then.tokens)
    for at, (mine, other) in enumerate(zip(first.tokens, then.tokens, strict=True)):
        if mine != other:
            near = min(first.gaps[at], then.gaps[at])
            assert near <= NEAR, f"they part at token {at}, where the best leads by {near:.3f}"
            return at
    return None
