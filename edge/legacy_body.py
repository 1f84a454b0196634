"""Bodies and answers of the legacy text routes, as their clients know them: types and ranges.

The fields, their defaults and the answers' shapes are those of text-generator.io's public API.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta

from edge.openai_body import (
    Choices,
    Count,
    Factor,
    NotYet,
    Probability,
    Seed,
    Share,
    Stops,
    Temperature,
    Tokens,
)

_Text = Annotated[str, Meta(min_length=1)]
_Alias = Annotated[
    str | None,
    Meta(description="A model; any other word, `best` among them: the one the route has."),
]

DEFAULT_MAX_LENGTH = 100
DEFAULT_SUMMARY_CHARS = 1_000


class GenerateBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A text to continue."""

    text: _Text
    number_of_results: Choices | None = None
    max_length: (
        Annotated[Tokens, Meta(description="Of the continuation, in tokens; 100 if not given.")]
        | None
    ) = None
    max_sentences: Count | None = None
    min_probability: (
        Annotated[
            Probability,
            Meta(description="It ends at a token less likely than this; 0: no limit."),
        ]
        | None
    ) = None
    stop_sequences: Stops | None = None
    top_p: Share | None = 0.9
    top_k: Count | None = 40
    temperature: Temperature | None = 0.7
    seed: Annotated[Seed, Meta(description="0: random.")] | None = None
    repetition_penalty: Factor | None = 1.2
    min_p: Probability | None = None
    model: _Alias = None
    enable_thinking: (
        Annotated[bool, Meta(description="true: it thinks first, then answers the text as a chat.")]
        | None
    ) = None
    # Refused when they ask for something:
    min_length: NotYet = UNSET
    stream: NotYet = UNSET


class Generated(msgspec.Struct):
    """One continuation."""

    generated_text: str
    """The text that was sent, and behind it what was written."""
    stop_reason: str
    """`max_length`, the stop sequence that ended it, or `stop` for every other end."""
    thinking_content: str | None = None


class SummarizationBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A text to summarise."""

    text: _Text
    max_length: (
        Annotated[Tokens, Meta(description="Of the summary, in characters; 1000 if not given.")]
        | None
    ) = None
    model: _Alias = None


class Summary(msgspec.Struct):
    """What a text says, in few words."""

    summary: str


generate_decoder = msgspec.json.Decoder(GenerateBody)
summarization_decoder = msgspec.json.Decoder(SummarizationBody)
