"""Fields that OpenAI's chat and completion requests share, as clients may write them.

Types and ranges, no meaning: the same structs decode requests and describe them in /openapi.json,
so the page is true. Fields are in three groups: what is understood; what is refused unless it asks
for nothing (`NotYet`, looked into by `openai_request`); and what changes no answer and is let
through unread (`Unread`). Every other field is refused by name.

What is a list or a map has a most, because all of it is made into objects; what is not understood
is not even made into objects, whatever it holds.
"""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Tokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Probability = Annotated[float, Meta(ge=0, le=1)]
# Engines take float32 from 1e-6 and 1e-3 on; what is let through here is in range there, too.
Share = Annotated[float, Meta(ge=1e-5, le=1)]
Factor = Annotated[float, Meta(ge=1e-3, le=10)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

_NOT_YET = Meta(description="Not supported; refused when it asks for something.")
_UNREAD = Meta(description="Accepted and ignored.")
NotYet = Annotated[Raw | UnsetType, _NOT_YET]
Unread = Annotated[Raw | UnsetType, _UNREAD]

MOST_CHOICES = 16
MOST_STOPS = 64
MOST_TOP_LOGPROBS = 20
MOST_BIASES = 1_024

Choices = Annotated[int, Meta(ge=1, le=MOST_CHOICES)]
Stops = str | Annotated[list[str], Meta(max_length=MOST_STOPS)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How the stream is told."""

    include_usage: bool = False
    include_obfuscation: Unread = UNSET


class SampledBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How to answer, whatever is to be answered."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    stop: Stops | None = None
    n: Choices | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=MOST_BIASES)]
        | None
    ) = None
    # Beyond OpenAI's own:
    top_k: Count | None = None
    min_p: Probability | None = None
    typical_p: Share | None = None
    repetition_penalty: Factor | None = None
    ignore_eos: bool | None = None
    max_sentences: (
        Annotated[Count, Meta(description="The answer ends after so many; 0: no limit.")] | None
    ) = None
    min_probability: (
        Annotated[
            Probability,
            Meta(description="The answer ends at a token less likely than this; 0: no limit."),
        ]
        | None
    ) = None
    # Let through:
    user: Unread = UNSET
    service_tier: Unread = UNSET
