"""How likely the tokens of a chat answer were, in OpenAI's shape. Pure."""

from collections.abc import Iterable

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.openai_answer import logprob_of


class ChatTopLogprob(msgspec.Struct):
    """A token that might have been; `bytes` are its own where `token` cannot show them."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    """A token of the answer, and the likeliest in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[ChatTopLogprob]


class ChoiceLogprobs(msgspec.Struct):
    """All tokens of an answer, or of a piece of it."""

    content: list[ChatTokenLogprob]
    refusal: None = None


def logprobs_of(tokens: Iterable[pb.TokenLogprob]) -> list[ChatTokenLogprob]:
    """The tokens, in order."""
    return [_token(token) for token in tokens]


def _token(token: pb.TokenLogprob) -> ChatTokenLogprob:
    chosen = token.chosen
    return ChatTokenLogprob(
        _shown(chosen.text), logprob_of(chosen), list(chosen.text), [_top(top) for top in token.top]
    )


def _top(candidate: pb.TokenLogprob.Candidate) -> ChatTopLogprob:
    return ChatTopLogprob(_shown(candidate.text), logprob_of(candidate), list(candidate.text))


def _shown(text: bytes) -> str:
    return text.decode(errors="replace")
