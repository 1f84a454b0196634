"""OpenAI's Responses dialect into llm.v1: what a request means, and a refusal that names the field.

Pure. What was said before, where the request goes on from a response, is an argument.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, Raw, UnsetType

from chassis.errors import Fault
from cohabit.llm.v1 import llm_pb2 as pb
from edge.errors import bad_field
from edge.json_body import decode_part
from edge.responses import items
from edge.responses.body import ResponsesBody, ResponseTool, TextFormat, ToolWish
from edge.responses.objects import ListedItem, MessageText, ResponseMessage

_NOT_YET = (
    "background",
    "conversation",
    "prompt",
    "context_management",
    "moderation",
    "messages",
    "decoding",
    "fairness_key",
    "allow_remote",
)
_ASKS_NOTHING = (b"null", b"false", b"[]", b"{}")
_LOGPROBS = "message.output_text.logprobs"
# Accepted for clients that always ask: nothing here is encrypted, and nothing needs to be.
_INCLUDED = (_LOGPROBS, "reasoning.encrypted_content")
_MODES = {
    "none": pb.ToolChoice.MODE_NONE,
    "auto": pb.ToolChoice.MODE_AUTO,
    "required": pb.ToolChoice.MODE_REQUIRED,
}
_THINKING = {"enabled": pb.THINKING_ENABLED, "disabled": pb.THINKING_DISABLED}
_ANY_LANGUAGE = ("auto", "mixed")

_tool = msgspec.json.Decoder(ResponseTool)


@dataclass(frozen=True, slots=True)
class Understood:
    """A request, understood."""

    generate: pb.GenerateRequest
    given: tuple[ListedItem, ...]
    """The request's own items."""
    tools: tuple[ResponseTool, ...]


def understand(
    body: ResponsesBody, before: Sequence[ListedItem], new_id: items.NewId
) -> Understood:
    """What `body` asks for, after the items of the conversation `before`. Raises Fault."""
    _refuse_unsupported(body)
    given = tuple(_given(body, new_id))
    if not given:
        raise bad_field("input", "`input` is missing: expected text, or a list of items.")
    tools = tuple(_tools(body))
    talk = pb.GenerateRequest.Conversation(
        messages=[*_instructions(body), *_turns(body, before, given)],
        tools=[_offered(tool) for tool in tools],
        tool_choice=_tool_choice(body.tool_choice),
    )
    if body.parallel_tool_calls is False:
        talk.tool_choice.single = True
    generate = pb.GenerateRequest(
        model=body.model,
        conversation=talk,
        max_tokens=body.max_output_tokens or 0,
        sampling=pb.Sampling(temperature=body.temperature, top_p=body.top_p),
        logprobs=bool(body.top_logprobs) or _LOGPROBS in (body.include or ()),
        top_logprobs=body.top_logprobs or 0,
        output=_output(body),
        thinking=_thinking(body),
    )
    return Understood(generate, given, tools)


# What is refused.


def _refuse_unsupported(body: ResponsesBody) -> None:
    for field in _NOT_YET:
        value = getattr(body, field)
        if value is not UNSET and bytes(value) not in _ASKS_NOTHING:
            raise bad_field(field, f"`{field}` is not supported yet; remove it from the request.")
    if body.truncation == "auto":
        raise bad_field(
            "truncation",
            "`truncation` must be `disabled`: what does not fit is refused, and never dropped.",
        )
    if body.stream_options is not None and not body.stream:
        raise bad_field("stream_options", "`stream_options` needs `stream: true`; remove it.")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise bad_field("text.verbosity", "`text.verbosity` is not supported; remove it.")
    for wish in body.include or ():
        if wish not in _INCLUDED:
            raise bad_field(
                "include", f"`{wish[:64]}` cannot be included; {', '.join(_INCLUDED)} can."
            )


# What is asked.


def _given(body: ResponsesBody, new_id: items.NewId) -> Iterator[ListedItem]:
    if isinstance(body.input, str):
        if body.input:
            part = MessageText(body.input)
            yield ResponseMessage(new_id("msg_"), "user", "completed", [part])
        return
    for i, raw in enumerate(body.input or ()):
        at = f"input[{i}]"
        yield items.listed(items.read(raw, at), at, new_id)


def _instructions(body: ResponsesBody) -> Iterator[pb.Message]:
    if body.instructions:
        part = pb.ContentPart(text=body.instructions)
        yield pb.Message(role=pb.ROLE_SYSTEM, content=[part])


def _turns(
    body: ResponsesBody, before: Sequence[ListedItem], given: Sequence[ListedItem]
) -> list[pb.Message]:
    if body.source_lang_code is not None or body.target_lang_code is not None:
        return [_translation(body)]
    return items.turns((*before, *given))


def _translation(body: ResponsesBody) -> pb.Message:
    if not isinstance(body.input, str):
        raise bad_field("input", "With a language to translate to, `input` must be one text.")
    if not body.target_lang_code:
        raise bad_field("target_lang_code", "`target_lang_code` is missing: a translation has one.")
    for field in ("instructions", "previous_response_id"):
        if getattr(body, field):
            raise bad_field(field, f"A translation takes no `{field}`; remove it.")
    source = body.source_lang_code or ""
    asked = pb.ContentPart.Translation(
        text=body.input,
        source_lang_code="" if source in _ANY_LANGUAGE else source,
        target_lang_code=body.target_lang_code,
    )
    return pb.Message(role=pb.ROLE_USER, content=[pb.ContentPart(translation=asked)])


def _tools(body: ResponsesBody) -> Iterator[ResponseTool]:
    for i, raw in enumerate(body.tools or ()):
        at = f"tools[{i}]"
        kind = items.kind_of(raw, at)
        if kind not in (None, "function"):
            raise bad_field(
                f"{at}.type",
                f"Tools of type `{(kind or '')[:64]}` are not supported; only `function` is.",
            )
        tool = decode_part(_tool, raw, at)
        _object(tool.parameters, f"{at}.parameters")
        yield tool


def _offered(tool: ResponseTool) -> pb.Tool:
    schema = _object(tool.parameters, f"tools.{tool.name}.parameters")
    return pb.Tool(name=tool.name, description=tool.description or "", parameters_json=schema)


def _tool_choice(choice: str | ToolWish | None) -> pb.ToolChoice | None:
    if choice is None:
        return None
    if isinstance(choice, str):
        return pb.ToolChoice(mode=_MODES[choice])
    if choice.type != "function" or not choice.name:
        raise bad_field(
            "tool_choice",
            "`tool_choice` must be none, auto, required, or a function with its `name`.",
        )
    return pb.ToolChoice(mode=pb.ToolChoice.MODE_NAMED, name=choice.name)


def _output(body: ResponsesBody) -> pb.OutputConstraint | None:
    wanted = body.text.format if body.text is not None else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return pb.OutputConstraint(json_object=True)
    return pb.OutputConstraint(json_schema=_schema(wanted))


def _schema(wanted: TextFormat) -> str:
    schema = _object(wanted.schema, "text.format.schema")
    for field, given in (("name", wanted.name), ("schema", schema)):
        if not given:
            raise bad_field(f"text.format.{field}", f"`text.format.{field}` is missing.")
    return schema


def _object(raw: Raw | UnsetType, at: str) -> str:
    """A JSON object as JSON; empty: there is none. Raises Fault for what is none."""
    text = "null" if raw is UNSET else bytes(raw).decode()
    if text != "null" and not text.startswith("{"):
        raise bad_field(at, f"`{at}` must be a JSON object.")
    return "" if text == "null" else text


def _thinking(body: ResponsesBody) -> "pb.Thinking.ValueType":
    effort = body.reasoning.effort if body.reasoning is not None else None
    wishes = set()
    if body.thinking in _THINKING:
        wishes.add(_THINKING[body.thinking])
    if effort is not None:
        wishes.add(_THINKING["disabled" if effort in ("none", "minimal") else "enabled"])
    if len(wishes) > 1:
        raise _contradiction()
    return wishes.pop() if wishes else pb.THINKING_UNSPECIFIED


def _contradiction() -> Fault:
    return bad_field("thinking", "`thinking` and `reasoning.effort` disagree; send one of them.")
