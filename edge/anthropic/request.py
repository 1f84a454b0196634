"""Anthropic's dialect into llm.v1: what a request means, and a refusal that names the field.

Pure: bytes in, values out. Ranges and types are checked by `body` while parsing.
"""

from dataclasses import dataclass
from typing import Any

from chassis.errors import Fault
from cohabit.llm.v1 import llm_pb2 as pb
from edge import json_body
from edge.anthropic.body import (
    CountTokensBody,
    MessagesBody,
    ThinkingAdaptiveParam,
    ThinkingDisabledParam,
    ThinkingEnabledParam,
    ThinkingParam,
    count_decoder,
    messages_decoder,
)
from edge.anthropic.response import Shown
from edge.anthropic.tools import offer, one_call_only
from edge.anthropic.turns import conversation_of
from edge.errors import bad_field
from edge.openai_request import MOST_STOP_BYTES

_IN_PROMPT = ("context_management", "mcp_servers")
_IN_MESSAGES = ("container", "diagnostics", "inference_geo")
_INERT: tuple[Any, ...] = (None, [], {})
_SAMPLING = ("temperature", "top_p", "top_k")


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A request for a message, understood."""

    model: str
    stream: bool
    shown: Shown
    generate: pb.GenerateRequest


def parse(body: bytes) -> MessagesRequest:
    """The request in `body`. Raises Fault, its `param` the field at fault."""
    asked = json_body.decode(messages_decoder, body)
    _refuse_unsupported(asked, (*_IN_PROMPT, *_IN_MESSAGES))
    generate = pb.GenerateRequest(
        model=asked.model,
        conversation=_conversation(asked),
        max_tokens=asked.max_tokens,
        stop=_stops(asked.stop_sequences or []),
        sampling=_sampling(asked),
        thinking=_thinking(asked.thinking),
    )
    if asked.output_config is not None and asked.output_config.format is not None:
        at = "output_config.format.schema"
        schema = json_body.object_text(asked.output_config.format.schema, at)
        generate.output.json_schema = schema
    shown = Shown(
        thinking=getattr(asked.thinking, "display", None) != "omitted",
        one_call_only=one_call_only(asked.tool_choice),
    )
    return MessagesRequest(asked.model, bool(asked.stream), shown, generate)


def parse_count(body: bytes) -> pb.CountTokensRequest:
    """The question in `body`, `model` as the client names it. Raises Fault as `parse`."""
    asked = json_body.decode(count_decoder, body)
    _refuse_unsupported(asked, _IN_PROMPT)
    return pb.CountTokensRequest(
        model=asked.model, conversation=_conversation(asked), thinking=_thinking(asked.thinking)
    )


def _refuse_unsupported(asked: CountTokensBody, fields: tuple[str, ...]) -> None:
    for field in fields:
        if not json_body.asks_for_nothing(getattr(asked, field), _INERT):
            raise _unsupported(field)


def _unsupported(param: str) -> Fault:
    return bad_field(param, f"`{param}` is not supported; remove it from the request.")


def _conversation(asked: CountTokensBody) -> pb.GenerateRequest.Conversation:
    talk = conversation_of(asked.system, asked.messages)
    offer(talk, asked.tools or [], asked.tool_choice)
    return talk


def _thinking(wish: ThinkingParam | None) -> "pb.Thinking.ValueType":
    match wish:
        case ThinkingEnabledParam() | ThinkingAdaptiveParam():
            return pb.THINKING_ENABLED
        case ThinkingDisabledParam():
            return pb.THINKING_DISABLED
        case None:
            return pb.THINKING_UNSPECIFIED


def _stops(stops: list[str]) -> list[str]:
    for i, text in enumerate(stops):
        if not text or len(text.encode()) > MOST_STOP_BYTES:
            at = f"stop_sequences[{i}]"
            raise bad_field(at, f"`{at}` must have 1 to {MOST_STOP_BYTES} bytes in UTF-8.")
    return stops


def _sampling(asked: MessagesBody) -> pb.Sampling:
    given = {field: getattr(asked, field) for field in _SAMPLING}
    return pb.Sampling(**{field: value for field, value in given.items() if value is not None})
