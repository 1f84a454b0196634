"""The turns of OpenAI's chat dialect into llm.v1, and refusals that name the field. Pure."""

from collections.abc import Sequence

import msgspec

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.chat_body import AssistantToolCall, ChatMessage, ContentPart
from edge.errors import bad_field
from edge.json_body import object_text
from edge.openai_request import Inert, refuse_unless_inert

_ROLES = {
    "system": pb.ROLE_SYSTEM,
    "developer": pb.ROLE_SYSTEM,
    "user": pb.ROLE_USER,
    "assistant": pb.ROLE_ASSISTANT,
    "tool": pb.ROLE_TOOL,
}
_MODALITY_OF_PART = {"image_url": "images", "input_audio": "audio", "file": "files"}
_INERT: Inert = {"function_call": (None,), "audio": (None,)}
# Words for a source that is not known; TranslateGemma's own is to say nothing.
_ANY_LANGUAGE = ("auto", "mixed")


def messages_of(messages: Sequence[ChatMessage]) -> list[pb.Message]:
    """The turns, in order. Raises Fault."""
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: ChatMessage, at: str) -> pb.Message:
    role = _ROLES.get(message.role)
    if role is None:
        raise _bad_role(message.role, f"{at}.role")
    refuse_unless_inert(message, _INERT, f"{at}.")
    _check_role(message, at)
    return pb.Message(
        role=role,
        name=message.name or "",
        content=_parts(message, at),
        reasoning=message.reasoning_content or "",
        tool_calls=[
            _call(call, f"{at}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls or ())
        ],
        tool_call_id=message.tool_call_id or "",
    )


def _bad_role(role: str, at: str) -> Fault:
    if role == "function":
        return bad_field(at, f"`{at}` is `function`, OpenAI's former word; send role `tool`.")
    known = ", ".join(_ROLES)
    return bad_field(at, f"Invalid value for `{at}`: expected one of {known}.")


def _check_role(message: ChatMessage, at: str) -> None:
    """Raises Fault for what only messages of another role have."""
    only = (
        ("reasoning_content", message.reasoning_content, "assistant"),
        ("tool_calls", message.tool_calls, "assistant"),
        ("tool_call_id", message.tool_call_id, "tool"),
    )
    for field, value, role in only:
        if value and message.role != role:
            where = f"{at}.{field}"
            raise bad_field(where, f"`{where}` is for messages of role `{role}`; remove it.")
    if message.role == "tool" and not message.tool_call_id:
        where = f"{at}.tool_call_id"
        raise bad_field(where, f"`{where}` is missing: expected the id of the call it answers.")


def _call(call: AssistantToolCall, at: str) -> pb.ToolCall:
    arguments = call.function.arguments.strip() or "{}"
    raw = msgspec.Raw(arguments.encode())
    return pb.ToolCall(
        id=call.id,
        name=call.function.name,
        arguments_json=object_text(raw, f"{at}.function.arguments"),
    )


def _parts(message: ChatMessage, at: str) -> list[pb.ContentPart]:
    content = message.content
    if isinstance(content, str):
        return [pb.ContentPart(text=content)]
    if content:
        return [_part(part, f"{at}.content[{i}]") for i, part in enumerate(content)]
    if message.role == "assistant":
        return []
    raise bad_field(f"{at}.content", f"`{at}.content` is missing: expected text.")


def _part(part: ContentPart, at: str) -> pb.ContentPart:
    if part.type == "refusal":
        return pb.ContentPart(text=part.refusal or "")
    if kind := _MODALITY_OF_PART.get(part.type):
        message = f"This version reads text only; remove the {kind} from `{at}`."
        raise bad_field(at, message, Reason.MODALITY_UNSUPPORTED)
    if part.type != "text":
        raise bad_field(f"{at}.type", f"Invalid value for `{at}.type`: expected `text`.")
    if part.text is None:
        raise bad_field(f"{at}.text", f"`{at}.text` is missing: expected text.")
    if part.target_lang_code or part.source_lang_code:
        return pb.ContentPart(translation=_translation(part, part.text, at))
    return pb.ContentPart(text=part.text)


def _translation(part: ContentPart, text: str, at: str) -> pb.ContentPart.Translation:
    if not part.target_lang_code:
        where = f"{at}.target_lang_code"
        raise bad_field(where, f'`{where}` is missing: expected a language, e.g. "nl" or "pt-BR".')
    source = part.source_lang_code or ""
    return pb.ContentPart.Translation(
        text=text,
        source_lang_code="" if source in _ANY_LANGUAGE else source,
        target_lang_code=part.target_lang_code,
    )
