"""OpenAI's chat dialect into llm.v1: what a request means, and a refusal that names the field.

Pure: bytes in, a ChatRequest out. Ranges and types are checked by `chat_body` while parsing;
`chat_messages` reads the turns, `chat_tools` the tools and formats.
"""

from dataclasses import dataclass

from cohabit.llm.v1 import llm_pb2 as pb
from edge import json_body
from edge.chat_body import ChatBody, decoder
from edge.chat_messages import messages_of
from edge.chat_tools import choice_of, constraint_of, tools_of
from edge.errors import bad_field
from edge.json_body import asks_for_nothing
from edge.openai_request import Inert, answered, includes_usage, refuse_unless_inert

_INERT: Inert = {
    "modalities": (None, ["text"]),
    "audio": (None,),
    "web_search_options": (None,),
    "moderation": (None,),
    "verbosity": (None, "medium"),
}
_FORMER: Inert = {"functions": (None, []), "function_call": (None, "none", "auto")}
_THINKS = {"default": None, "enabled": True, "disabled": False}


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request, understood."""

    model: str
    stream: bool
    include_usage: bool
    parallel_tool_calls: bool
    """Whether more than the first call may be answered."""
    generate: pb.GenerateRequest


def parse(body: bytes) -> ChatRequest:
    """The request in `body`. Raises Fault, its `param` the field at fault."""
    chat = json_body.decode(decoder, body)
    _refuse_former(chat)
    refuse_unless_inert(chat, _INERT)
    return ChatRequest(
        model=chat.model,
        stream=bool(chat.stream),
        include_usage=includes_usage(chat),
        parallel_tool_calls=chat.parallel_tool_calls is not False,
        generate=_generate(chat),
    )


def _generate(chat: ChatBody) -> pb.GenerateRequest:
    generate = answered(chat)
    generate.model = chat.model
    generate.conversation.CopyFrom(_conversation(chat))
    if chat.parallel_tool_calls is False:
        generate.conversation.tool_choice.single = True
    generate.max_tokens = _max_tokens(chat)
    generate.thinking = _thinking(chat)
    generate.logprobs, generate.top_logprobs = _logprobs(chat)
    if (constraint := constraint_of(chat.response_format)) is not None:
        generate.output.CopyFrom(constraint)
    return generate


def _refuse_former(chat: ChatBody) -> None:
    for field, nothing in _FORMER.items():
        if not asks_for_nothing(getattr(chat, field), nothing):
            successor = "tools" if field == "functions" else "tool_choice"
            message = f"`{field}` is OpenAI's former way and not supported; send `{successor}`."
            raise bad_field(field, message)


def _conversation(chat: ChatBody) -> pb.GenerateRequest.Conversation:
    return pb.GenerateRequest.Conversation(
        messages=messages_of(chat.messages),
        tools=tools_of(chat.tools),
        tool_choice=choice_of(chat),
        continue_last=_continues(chat),
    )


def _continues(chat: ChatBody) -> bool:
    """Whether the last message is continued. Raises Fault where it cannot be."""
    continues, last = bool(chat.continue_final_message), chat.messages[-1]
    if chat.add_generation_prompt is continues:
        raise bad_field(
            "add_generation_prompt",
            "`add_generation_prompt` must be the opposite of `continue_final_message`; remove it.",
        )
    if continues and (last.role != "assistant" or not last.content or last.tool_calls):
        raise bad_field(
            "continue_final_message",
            "`continue_final_message` needs a last message of role `assistant`, of text alone.",
        )
    return continues


def _thinking(chat: ChatBody) -> pb.Thinking.ValueType:
    """What is wished of thinking, in whichever of the three ways. Raises Fault for a quarrel."""
    effort, options = chat.reasoning_effort, chat.chat_template_kwargs
    wishes = {
        "reasoning_effort": effort not in ("none", "minimal") if effort else None,
        "chat_template_kwargs": options.enable_thinking if options else None,
        "thinking": _THINKS[chat.thinking] if chat.thinking else None,
    }
    said = {param: wish for param, wish in wishes.items() if wish is not None}
    if len(set(said.values())) > 1:
        first, *_, last = said
        raise bad_field(last, f"`{last}` and `{first}` disagree about thinking; send one of them.")
    if not said:
        return pb.THINKING_UNSPECIFIED
    return pb.THINKING_ENABLED if all(said.values()) else pb.THINKING_DISABLED


def _logprobs(chat: ChatBody) -> tuple[bool, int]:
    if chat.top_logprobs and not chat.logprobs:
        raise bad_field("top_logprobs", "`top_logprobs` needs `logprobs: true`.")
    return bool(chat.logprobs), chat.top_logprobs or 0


def _max_tokens(chat: ChatBody) -> int:
    old, new = chat.max_tokens, chat.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise bad_field(
            "max_tokens",
            "`max_tokens` and `max_completion_tokens` disagree; send `max_completion_tokens` only.",
        )
    return new or old or 0
