"""OpenAI's chat dialect into llm.v1: what a request means, and a refusal that names the field.

Pure: bytes in, a ChatRequest out. Ranges and types are checked by `chat_body` while parsing.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge import json_body
from edge.chat_body import ChatBody, ChatMessage, ContentPart, decoder
from edge.errors import bad_field

MOST_STOP_BYTES = 256
_MOST_INERT_BYTES = 64
_MOST_TOKEN_DIGITS = 10

_ROLES = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
}
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
_MODALITY_OF_PART = {"image_url": "images", "input_audio": "audio", "file": "files"}

# Field → the values that ask for nothing and are therefore let through.
_INERT: dict[str, tuple[Any, ...]] = {
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "modalities": (None, ["text"]),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "audio": (None,),
    "web_search_options": (None,),
    "reasoning_effort": (None,),
    "verbosity": (None,),
}
_INERT_IN_MESSAGE: dict[str, tuple[Any, ...]] = {
    "tool_calls": (None, []),
    "tool_call_id": (None,),
    "function_call": (None,),
    "audio": (None,),
}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request, understood."""

    model: str
    stream: bool
    include_usage: bool
    generate: pb.GenerateRequest


def parse(body: bytes) -> ChatRequest:
    """The request in `body`. Raises Fault, its `param` the field at fault."""
    chat = json_body.decode(decoder, body)
    _refuse_unsupported(chat)
    options = chat.stream_options
    if options is not None and not chat.stream:
        raise bad_field("stream_options", "`stream_options` needs `stream: true`; remove it.")
    return ChatRequest(
        model=chat.model,
        stream=bool(chat.stream),
        include_usage=options is not None and options.include_usage,
        generate=pb.GenerateRequest(
            model=chat.model,
            conversation=pb.GenerateRequest.Conversation(
                messages=[_message(m, f"messages[{i}]") for i, m in enumerate(chat.messages)]
            ),
            max_tokens=_max_tokens(chat),
            stop=_stops(chat.stop),
            sampling=_sampling(chat),
            ignore_eos=bool(chat.ignore_eos),
        ),
    )


def _unsupported(param: str) -> Fault:
    return bad_field(param, f"`{param}` is not supported yet; remove it from the request.")


def _refuse_unsupported(chat: ChatBody) -> None:
    if chat.n not in (None, 1):
        raise bad_field("n", "`n` must be 1: several answers at once are not supported yet.")
    if chat.response_format is not None and chat.response_format.type != "text":
        raise bad_field(
            "response_format",
            f"`response_format` of type `{chat.response_format.type[:64]}` is not supported yet; "
            "only `text` is.",
        )
    for field, inert in _INERT.items():
        if not _is_inert(getattr(chat, field), inert):
            raise _unsupported(field)


def _is_inert(value: Any, inert: tuple[Any, ...]) -> bool:
    """Whether a field asks for nothing. What is raw is looked into only if it is short."""
    if isinstance(value, msgspec.Raw):
        if memoryview(value).nbytes > _MOST_INERT_BYTES:
            return False
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return False
    return value is msgspec.UNSET or value in inert


def _message(message: ChatMessage, at: str) -> pb.Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise _bad_role(message.role, f"{at}.role")
    for field, inert in _INERT_IN_MESSAGE.items():
        if not _is_inert(getattr(message, field), inert):
            raise _unsupported(f"{at}.{field}")
    result = pb.Message(role=role, name=message.name or "")
    if message.reasoning_content:
        if role != pb.ROLE_ASSISTANT:
            where = f"{at}.reasoning_content"
            raise bad_field(where, f"`{where}` is for messages of role `assistant`; remove it.")
        result.reasoning = message.reasoning_content
    for text in _texts(message, at):
        result.content.add().text = text
    return result


def _bad_role(role: str, at: str) -> Fault:
    if role in ("tool", "function"):
        return bad_field(at, f"Messages of role `{role}` are not supported yet; remove them.")
    known = ", ".join(_ROLES)
    return bad_field(at, f"Invalid value for `{at}`: expected one of {known}.")


def _texts(message: ChatMessage, at: str) -> list[str]:
    content = message.content
    if isinstance(content, str):
        return [content]
    if not content:
        if message.role == "assistant":
            return []
        raise bad_field(f"{at}.content", f"`{at}.content` is missing: expected text.")
    return [_text(part, f"{at}.content[{i}]") for i, part in enumerate(content)]


def _text(part: ContentPart, at: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if kind := _MODALITY_OF_PART.get(part.type):
        message = f"This version reads text only; remove the {kind} from `{at}`."
        raise bad_field(at, message, Reason.MODALITY_UNSUPPORTED)
    if part.type != "text":
        raise bad_field(f"{at}.type", f"Invalid value for `{at}.type`: expected `text`.")
    if part.text is None:
        raise bad_field(f"{at}.text", f"`{at}.text` is missing: expected text.")
    return part.text


def _max_tokens(chat: ChatBody) -> int:
    old, new = chat.max_tokens, chat.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise bad_field(
            "max_tokens",
            "`max_tokens` and `max_completion_tokens` disagree; send `max_completion_tokens` only.",
        )
    return new or old or 0


def _stops(stop: str | list[str] | None) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop or []
    for text in stops:
        if not text or len(text.encode()) > MOST_STOP_BYTES:
            raise bad_field(
                "stop", f"Each string in `stop` must have 1 to {MOST_STOP_BYTES} bytes in UTF-8."
            )
    return stops


def _sampling(chat: ChatBody) -> pb.Sampling:
    sampling = pb.Sampling()
    for field in _SAMPLING:
        if (value := getattr(chat, field)) is not None:
            setattr(sampling, field, value)
    if chat.seed is not None:
        sampling.seed = chat.seed % 2**64
    for token, bias in (chat.logit_bias or {}).items():
        known = token.isdecimal() and len(token) <= _MOST_TOKEN_DIGITS and int(token) < 2**31
        if not known:
            raise bad_field("logit_bias", 'Keys of `logit_bias` must be token ids, e.g. "50256".')
        sampling.logit_bias[int(token)] = bias
    return sampling
