"""How this dialect says what is no answer: OpenAI's envelope, with the fields' names of this body.

Engines and other rooms name fields as chat completions do.
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from chassis.errors import Fault
from edge import speech
from edge.speech import PARAM, ErrorDetail, ErrorEnvelope, Speech

_FIELDS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "logprobs": "include",
}
_decode = msgspec.json.Decoder(ErrorEnvelope).decode


def _renamed(fault: Fault) -> Fault:
    param = fault.metadata.get(PARAM, "")
    for theirs, ours in _FIELDS.items():
        if param == theirs or param.startswith((f"{theirs}.", f"{theirs}[")):
            told = {**fault.metadata, PARAM: ours + param.removeprefix(theirs)}
            return Fault(
                fault.reason, fault.message, retry_after_s=fault.retry_after_s, metadata=told
            )
    return fault


def _envelope(fault: Fault, request_id: str) -> bytes:
    return speech.OPENAI.envelope(_renamed(fault), request_id)


def detail(fault: Fault) -> ErrorDetail:
    """What the envelope holds."""
    return _decode(_envelope(fault, "")).error


def ending(tell: Callable[[Fault], bytes]) -> Speech:
    """The speech of an understood request; `tell`: a fault → the last events of its stream."""
    return replace(speech.OPENAI, envelope=_envelope, event=lambda fault, _request_id: tell(fault))
