"""What OpenAI's chat and completion answers have in common: usage, finish reasons, logprobs. Pure.

An answer has one prompt and one or more choices, which end one by one.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.timings import Timings, timings_of

FinishWord = Literal["stop", "length", "tool_calls"]

_FINISH: dict[int, FinishWord] = {
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
    pb.FINISH_REASON_TOOL_CALLS: "tool_calls",
}
DONE = b"data: [DONE]\n\n"

_LEAST_LOGPROB = -9999.0
"""OpenAI's word for "very unlikely"; JSON has none for minus infinity."""
_LOGPROB_DIGITS = 6


class PromptDetails(msgspec.Struct):
    """Of the prompt: what the prefix cache had."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """Of the completion: what was thought rather than said."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Tokens counted: the prompt once, the completions of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Ends:
    """How the choices of one answer ended, in the order in which they did."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._finishes: dict[int, pb.Finish] = {}

    def add(self, message: pb.GenerateResponse) -> None:
        """Take in a message with a `finish`."""
        self._finishes[message.choice] = message.finish

    def of(self, choice: int) -> pb.Finish:
        """How one ended, which it must have."""
        return self._finishes[choice]

    @property
    def usage(self) -> Usage:
        """Of all choices together."""
        return usage_of(self._finishes)

    @property
    def metrics(self) -> Timings:
        """Of the choice that ended last: nobody waited longer."""
        return timings_of(self._served, next(reversed(self._finishes.values())))


def usage_of(finishes: Mapping[int, pb.Finish]) -> Usage:
    """The usage that finished choices report together; there is one at least."""
    told = [finishes[choice].usage for choice in sorted(finishes)]
    # What later choices took from the cache may be what the first has just put there.
    prompt, completion = told[0], sum(usage.completion_tokens for usage in told)
    return Usage(
        prompt_tokens=prompt.prompt_tokens,
        completion_tokens=completion,
        total_tokens=prompt.prompt_tokens + completion,
        prompt_tokens_details=PromptDetails(prompt.cached_prompt_tokens),
        completion_tokens_details=CompletionDetails(sum(u.reasoning_tokens for u in told)),
    )


def finish_word(finish: pb.Finish) -> FinishWord:
    """Why the answer ended, in OpenAI's word."""
    return _FINISH.get(finish.reason, "stop")


def logprob_of(candidate: pb.TokenLogprob.Candidate) -> float:
    """As JSON can say it."""
    value = candidate.logprob
    return round(value, _LOGPROB_DIGITS) if value > _LEAST_LOGPROB else _LEAST_LOGPROB
