"""What the fields that OpenAI's dialects share mean, in llm.v1, and refusals that name the field.

Pure. Ranges and types are checked by `openai_body` while parsing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from chassis.errors import Fault
from cohabit.llm.v1 import llm_pb2 as pb
from edge.errors import bad_field
from edge.json_body import asks_for_nothing
from edge.openai_body import SampledBody

MOST_STOP_BYTES = 256
_MOST_INERT_BYTES = 64
_MOST_TOKEN_DIGITS = 10

_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)

Inert = Mapping[str, tuple[Any, ...]]
"""Field → the values that ask for nothing and are therefore let through."""


def unsupported(param: str) -> Fault:
    """The refusal of a field that would change the answer, and is not built."""
    return bad_field(param, f"`{param}` is not supported; remove it from the request.")


def refuse_unless_inert(body: msgspec.Struct, inert: Inert, at: str = "") -> None:
    """Raises Fault for the first field of `inert` that asks for something."""
    for field, nothing in inert.items():
        if not asks_for_nothing(getattr(body, field), nothing):
            raise unsupported(f"{at}{field}")


def includes_usage(body: SampledBody) -> bool:
    """Whether the stream ends with its usage. Raises Fault where there is no stream."""
    options = body.stream_options
    if options is None:
        return False
    if not body.stream:
        raise bad_field("stream_options", "`stream_options` needs `stream: true`; remove it.")
    return options.include_usage


def answered(body: SampledBody) -> pb.GenerateRequest:
    """How to answer, with nothing to answer yet. Raises Fault."""
    return pb.GenerateRequest(
        max_tokens=body.max_tokens or 0,
        stop=stops_of(body.stop, "stop"),
        sampling=sampling_of(body),
        choices=body.n or 0,
        max_sentences=body.max_sentences or 0,
        min_probability=body.min_probability or 0,
        ignore_eos=bool(body.ignore_eos),
    )


def stops_of(stop: str | list[str] | None, param: str) -> list[str]:
    """The stop strings. Raises Fault for one that is empty or long."""
    stops = [stop] if isinstance(stop, str) else stop or []
    for text in stops:
        if not text or len(text.encode()) > MOST_STOP_BYTES:
            raise bad_field(
                param,
                f"Each string in `{param}` must have 1 to {MOST_STOP_BYTES} bytes in UTF-8.",
            )
    return stops


def sampling_of(body: SampledBody) -> pb.Sampling:
    """How the next token is chosen: what the client set, and nothing else. Raises Fault."""
    sampling = pb.Sampling()
    for field in _SAMPLING:
        if (value := getattr(body, field)) is not None:
            setattr(sampling, field, value)
    if body.seed is not None:
        sampling.seed = body.seed % 2**64
    for token, bias in (body.logit_bias or {}).items():
        known = token.isdecimal() and len(token) <= _MOST_TOKEN_DIGITS and int(token) < 2**31
        if not known:
            raise bad_field("logit_bias", 'Keys of `logit_bias` must be token ids, e.g. "50256".')
        sampling.logit_bias[int(token)] = bias
    return sampling
