"""The tools of a chat, which of them it must call, and what its answer must look like. Pure."""

from collections.abc import Sequence

import msgspec

from chassis.errors import Fault
from cohabit.llm.v1 import llm_pb2 as pb
from edge.chat_body import (
    ChatBody,
    ChatTextFormat,
    ChatTool,
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    NamedToolChoice,
    RegexFormat,
    ResponseFormat,
    Schema,
)
from edge.errors import bad_field
from edge.json_body import object_text
from edge.openai_request import unsupported

_MODES = {
    "none": pb.ToolChoice.MODE_NONE,
    "auto": pb.ToolChoice.MODE_AUTO,
    "required": pb.ToolChoice.MODE_REQUIRED,
}


def tools_of(tools: Sequence[ChatTool] | None) -> list[pb.Tool]:
    """The tools on offer. Raises Fault."""
    return [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ())]


def _tool(tool: ChatTool, at: str) -> pb.Tool:
    if tool.type != "function":
        where = f"{at}.type"
        raise bad_field(where, f"Invalid value for `{where}`: only `function` is supported.")
    if tool.function is None:
        where = f"{at}.function"
        raise bad_field(where, f"`{where}` is missing.")
    return pb.Tool(
        name=tool.function.name,
        description=tool.function.description or "",
        parameters_json=_schema(tool.function.parameters, f"{at}.function.parameters"),
    )


def _schema(schema: Schema, at: str) -> str:
    """The schema's JSON text; empty: there is none."""
    if schema is msgspec.UNSET or bytes(schema) == b"null":
        return ""
    return object_text(schema, at)


def choice_of(chat: ChatBody) -> pb.ToolChoice | None:
    """Which tools must be called. Raises Fault for what the tools on offer cannot fulfil."""
    choice = chat.tool_choice
    if isinstance(choice, NamedToolChoice):
        return _named(choice, chat.tools or ())
    if choice == "required" and not chat.tools:
        raise _no_tools()
    if choice is None or not chat.tools:
        return None
    return pb.ToolChoice(mode=_MODES[choice])


def _named(choice: NamedToolChoice, tools: Sequence[ChatTool]) -> pb.ToolChoice:
    if choice.type != "function":
        where = "tool_choice.type"
        raise bad_field(where, f"Invalid value for `{where}`: only `function` is supported.")
    if choice.function is None:
        raise bad_field("tool_choice.function", "`tool_choice.function` is missing.")
    if not tools:
        raise _no_tools()
    name = choice.function.name
    if all(tool.function is None or tool.function.name != name for tool in tools):
        where = "tool_choice.function.name"
        raise bad_field(where, f"The function `{name}` of `{where}` is not among `tools`.")
    return pb.ToolChoice(mode=pb.ToolChoice.MODE_NAMED, name=name)


def _no_tools() -> Fault:
    return bad_field(
        "tool_choice", "`tool_choice` demands a tool, and there are none; send `tools`."
    )


def constraint_of(wish: ResponseFormat | None) -> pb.OutputConstraint | None:
    """What the answer must look like; None: anything goes. Raises Fault."""
    match wish:
        case None | ChatTextFormat():
            return None
        case JsonObjectFormat():
            return pb.OutputConstraint(json_object=True)
        case JsonSchemaFormat(json_schema):
            at = "response_format.json_schema.schema"
            schema = _schema(json_schema.schema, at)
            if not schema:
                raise bad_field(at, f"`{at}` is missing: expected a JSON schema.")
            return pb.OutputConstraint(json_schema=schema)
        case GrammarFormat(grammar):
            return pb.OutputConstraint(grammar=grammar)
        case RegexFormat(regex):
            return pb.OutputConstraint(regex=regex)
    raise unsupported("response_format")
