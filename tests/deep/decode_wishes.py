"""What people ask of an engine in a history of decoding, and a dumb judge of what they are told."""

import random
import re
from dataclasses import dataclass, field, replace

from services.llm.values import (
    Chunk,
    ConstraintKind,
    FinishReason,
    GenerateParams,
    OutputConstraint,
    SamplingParams,
    Tier,
    TokenLogprob,
    TokenPrompt,
)

CONTEXT_TOKENS = 256
FORM = "[a-d]{3,12}"
GREEDY = SamplingParams(temperature=0)


@dataclass(frozen=True, slots=True)
class Wish:
    """A request, and how it is read: `leaves_after` tokens; `sleeps` until everybody else is done.

    A `plain` one is greedy and ends by its length alone.
    """

    prompt: TokenPrompt
    params: GenerateParams
    plain: bool
    leaves_after: int
    sleeps: bool

    @property
    def limit(self) -> int:
        return self.params.max_tokens or CONTEXT_TOKENS - len(self.prompt.tokens)


class Wishes:
    """Draws them. Prompts begin alike, are repeated, or go on from an answer."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._stems = [self._tokens(length) for length in (8, 40, 120, 150)]
        self.said: list[tuple[int, ...]] = []
        """Prompts that were asked, and answers with the prompts before them."""

    def draw(self) -> Wish:
        chance = self._chance
        prompt = self._prompt()
        self.said.append(prompt)
        left = CONTEXT_TOKENS - len(prompt)
        params = GenerateParams(
            chance.choice((0, min(left, chance.randint(1, 60)), min(left, chance.randint(1, 20)))),
            sampling=GREEDY,
            choices=chance.choice((1, 1, 2, 3)),
            tier=chance.choice(tuple(Tier)),
            cache_scope=chance.choice(("", "", "alice")),
            ignore_eos=True,
        )
        plain = chance.random() < 0.6
        params = replace(params, logprobs=True, top_logprobs=2) if plain else self._odd(params)
        leaves_after = chance.randint(0, 40) if chance.random() < 0.2 else -1
        return Wish(TokenPrompt(prompt), params, plain, leaves_after, chance.random() < 0.08)

    def _prompt(self) -> tuple[int, ...]:
        chance = self._chance
        if self.said and chance.random() < 0.4:
            start = chance.choice(self.said)
            start += self._tokens(chance.choice((0, 0, 1, 20)))
        else:
            stem = chance.choice(self._stems)
            start = stem[: chance.randint(0, len(stem))] + self._tokens(chance.randint(1, 30))
        return start[: CONTEXT_TOKENS - 1]

    def _odd(self, params: GenerateParams) -> GenerateParams:
        chance = self._chance
        sampling = SamplingParams(
            temperature=0.9,
            top_k=chance.choice((0, 40)),
            typical_p=chance.choice((1.0, 0.5)),
            repetition_penalty=chance.choice((1.0, 1.3)),
            seed=chance.randint(0, 9),
        )
        form = OutputConstraint(ConstraintKind.REGEX, FORM) if chance.random() < 0.4 else None
        return replace(
            params,
            sampling=sampling,
            output=form,
            stop=chance.choice(((), ("e",), ("th", "wa"))) if form is None else (),
            min_probability=chance.choice((0.0, 0.0, 0.01)),
            ignore_eos=form is None and chance.random() < 0.5,
            logprobs=chance.random() < 0.3,
        )

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._chance.randint(3, 400) for _ in range(count))


@dataclass
class Heard:
    """What one request was told; breaks at the first thing that must not be."""

    wish: Wish
    tokens: list[int] = field(init=False)
    texts: list[str] = field(init=False)
    told: list[list[TokenLogprob]] = field(init=False)
    ended: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        n = self.wish.params.choices
        self.tokens, self.texts, self.ended = [0] * n, [""] * n, [False] * n
        self.told = [[] for _ in range(n)]

    def chunk(self, chunk: Chunk) -> None:
        i, prefill = chunk.choice, chunk.prefill
        assert not self.ended[i], "a choice ends once"
        if prefill is not None:
            assert not self.tokens[i], "progress is told before the text"
            assert 0 < prefill.done_tokens < prefill.total_tokens == len(self.wish.prompt.tokens)
        self.tokens[i] += chunk.tokens
        self.texts[i] += chunk.text
        self.told[i] += chunk.logprobs
        assert self.tokens[i] <= self.wish.limit
        if chunk.finish is not None:
            self.ended[i] = True
            self._finished(i, chunk)

    def _finished(self, i: int, chunk: Chunk) -> None:
        finish, params = chunk.finish, self.wish.params
        assert finish is not None
        usage = finish.usage
        assert usage.completion_tokens == self.tokens[i], "usage counts what was sent"
        assert usage.prompt_tokens == len(self.wish.prompt.tokens)
        assert 0 <= usage.cached_prompt_tokens < usage.prompt_tokens
        if self.wish.plain or finish.reason is FinishReason.LENGTH:
            assert finish.reason is FinishReason.LENGTH
            assert self.tokens[i] == self.wish.limit, "it ends by its length"
        elif params.output is not None and not params.min_probability:
            assert re.fullmatch(FORM, self.texts[i]), f"{self.texts[i]!r} has not its form"
        if params.logprobs:
            assert len(self.told[i]) == self.tokens[i], "every token is told of"
