"""Anthropic's turns into the messages of llm.v1. Pure; types have been checked by `body`.

A user's turn may hold results of tools: each becomes a message of its own, in the order of the
blocks. Turns of one role in a row become one, as the dialect has it: chat templates insist on
roles that take turns.
"""

from collections.abc import Iterator, Sequence

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.anthropic.body import (
    BlockParam,
    DocumentBlockParam,
    ImageBlockParam,
    MessageParam,
    RedactedThinkingBlockParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
)
from edge.errors import bad_field
from edge.json_body import object_text

_BETWEEN_TURNS = "\n\n"
_ROLES = {
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "system": pb.ROLE_SYSTEM,
}
_HOLDS = {
    "user": (TextBlockParam, ToolResultBlockParam),
    "assistant": (
        TextBlockParam,
        ThinkingBlockParam,
        RedactedThinkingBlockParam,
        ToolUseBlockParam,
    ),
    "system": (TextBlockParam,),
}
_MODALITIES = {ImageBlockParam: "images", DocumentBlockParam: "documents"}


def conversation_of(
    system: str | Sequence[TextBlockParam] | None, turns: Sequence[MessageParam]
) -> pb.GenerateRequest.Conversation:
    """The turns, and whether the last one is to be continued. Raises Fault."""
    talk = pb.GenerateRequest.Conversation()
    if system:
        _add(talk, _message(pb.ROLE_SYSTEM, _texts(system)))
    called: dict[str, str] = {}
    for i, turn in enumerate(turns):
        for message in _messages(turn, f"messages[{i}]", called):
            _add(talk, message)
    last = talk.messages[-1]
    if last.role == pb.ROLE_ASSISTANT:
        if last.tool_calls:
            at = f"messages[{len(turns) - 1}]"
            raise bad_field(at, f"`{at}` calls tools; send their results in a turn after it.")
        talk.continue_last = True
    return talk


def _add(talk: pb.GenerateRequest.Conversation, message: pb.Message) -> None:
    last = talk.messages[-1] if talk.messages else None
    if last is None or last.role != message.role or message.role == pb.ROLE_TOOL:
        talk.messages.append(message)
        return
    if last.content and message.content:
        last.content.add().text = _BETWEEN_TURNS
    last.content.extend(message.content)
    last.tool_calls.extend(message.tool_calls)
    last.reasoning += message.reasoning


def _messages(turn: MessageParam, at: str, called: dict[str, str]) -> Iterator[pb.Message]:
    role = _ROLES[turn.role]
    if isinstance(turn.content, str):
        yield _message(role, [turn.content])
        return
    if not turn.content:
        raise bad_field(f"{at}.content", f"`{at}.content` is empty: expected blocks.")
    message = pb.Message(role=role)
    for i, block in enumerate(turn.content):
        where = f"{at}.content[{i}]"
        _check_place(block, turn.role, where)
        if isinstance(block, ToolResultBlockParam):
            if message.content:
                yield message
                message = pb.Message(role=role)
            yield _result(block, where, called)
        else:
            _take(block, where, message, called)
    if role != pb.ROLE_USER or message.content:
        yield message


def _check_place(block: BlockParam, role: str, at: str) -> None:
    _refuse_modality(block, at)
    if not isinstance(block, _HOLDS[role]):
        kind = block.__struct_config__.tag
        raise bad_field(at, f"A turn of role `{role}` holds no `{kind}`; remove `{at}`.")


def _refuse_modality(block: BlockParam, at: str) -> None:
    if kind := _MODALITIES.get(type(block)):
        message = f"This version reads text only; remove the {kind} from `{at}`."
        raise bad_field(at, message, Reason.MODALITY_UNSUPPORTED)


def _take(block: BlockParam, at: str, message: pb.Message, called: dict[str, str]) -> None:
    match block:
        case TextBlockParam():
            message.content.add().text = block.text
        case ThinkingBlockParam():
            message.reasoning += block.thinking
        case ToolUseBlockParam():
            called[block.id] = block.name
            message.tool_calls.add(
                id=block.id,
                name=block.name,
                arguments_json=object_text(block.input, f"{at}.input"),
            )


def _result(block: ToolResultBlockParam, at: str, called: dict[str, str]) -> pb.Message:
    if block.tool_use_id not in called:
        raise _no_call(f"{at}.tool_use_id")
    texts = _result_texts(block, at)
    message = _message(pb.ROLE_TOOL, ["Error: ", *texts] if block.is_error else texts)
    message.tool_call_id, message.name = block.tool_use_id, called[block.tool_use_id]
    return message


def _result_texts(block: ToolResultBlockParam, at: str) -> list[str]:
    content = block.content or ""
    if isinstance(content, str):
        return [content]
    texts = []
    for i, part in enumerate(content):
        _refuse_modality(part, f"{at}.content[{i}]")
        if isinstance(part, TextBlockParam):
            texts.append(part.text)
    return texts


def _no_call(at: str) -> Fault:
    return bad_field(at, f"`{at}` is that of no `tool_use` in a turn before; correct it.")


def _texts(content: str | Sequence[TextBlockParam]) -> list[str]:
    return [content] if isinstance(content, str) else [block.text for block in content]


def _message(role: "pb.Role.ValueType", texts: Sequence[str]) -> pb.Message:
    return pb.Message(role=role, content=[pb.ContentPart(text=text) for text in texts])
