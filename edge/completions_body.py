"""The body of POST /v1/completions as clients may write it, and the answers as they read them.

What it shares with chat, and what the groups of fields are, says `openai_body`.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta

from edge.openai_answer import Usage
from edge.openai_body import MOST_TOP_LOGPROBS, Name, NotYet, SampledBody, Unread
from edge.timings import Timings

MOST_PROMPT_ITEMS = 1_048_576

_TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Prompt = (
    str
    | Annotated[
        list[str | _TokenId | Annotated[list[_TokenId], Meta(max_length=MOST_PROMPT_ITEMS)]],
        Meta(max_length=MOST_PROMPT_ITEMS),
    ]
)
Prompt = Annotated[
    _Prompt,
    Meta(description="A text, its tokens, or a list of one of either; one prompt a request."),
]


class PromptBody(SampledBody, forbid_unknown_fields=True, kw_only=True):
    """A prompt to complete, whatever the model."""

    prompt: Prompt
    suffix: str | None = None
    best_of: Annotated[int, Meta(description="As many as `n`; no other is supported.")] | None = (
        None
    )
    logprobs: Annotated[int, Meta(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    # Refused when it asks for something:
    echo: NotYet = UNSET
    # Let through:
    metadata: Unread = UNSET
    store: Unread = UNSET
    prompt_cache_key: Unread = UNSET
    safety_identifier: Unread = UNSET


class CompletionBody(PromptBody, forbid_unknown_fields=True, kw_only=True):
    """A completion request; without `max_tokens` the answer has 16 at most, as OpenAI has it."""

    model: Name


class EngineBody(PromptBody, forbid_unknown_fields=True, kw_only=True):
    """A completion request for the engine that the path names."""

    model: Unread = UNSET


class CompletionLogprobs(msgspec.Struct):
    """How likely the tokens were, side by side."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    """The likeliest in each token's place, and the token itself."""
    text_offset: list[int]
    """Where each token begins in `text`, in characters; in a stream, in all of the text so far."""


class CompletionChoice(msgspec.Struct):
    """A completion; in a stream, a piece of one."""

    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: CompletionLogprobs | None = None


class Completion(msgspec.Struct):
    """A whole answer; in a stream, one of its events.

    `metrics` says where its time went, and is not OpenAI's own. A stream has it where a choice
    ends, or, when `usage` was asked for, beside that in the last event.
    """

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    system_fingerprint: None = None
    metrics: Timings | msgspec.UnsetType = msgspec.UNSET


decoder = msgspec.json.Decoder(CompletionBody)
engine_decoder = msgspec.json.Decoder(EngineBody)
