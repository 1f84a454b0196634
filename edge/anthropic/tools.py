"""Tools on offer and the choice among them, from Anthropic's words into llm.v1. Pure."""

from collections.abc import Sequence

import msgspec

from cohabit.llm.v1 import llm_pb2 as pb
from edge.anthropic.body import (
    ToolChoiceAnyParam,
    ToolChoiceAutoParam,
    ToolChoiceNoneParam,
    ToolChoiceParam,
    ToolChoiceToolParam,
    ToolParam,
)
from edge.errors import bad_field
from edge.json_body import asks_for_nothing, object_text

_HERE = "custom"
_MODES = {
    ToolChoiceAutoParam: pb.ToolChoice.MODE_AUTO,
    ToolChoiceAnyParam: pb.ToolChoice.MODE_REQUIRED,
    ToolChoiceToolParam: pb.ToolChoice.MODE_NAMED,
    ToolChoiceNoneParam: pb.ToolChoice.MODE_NONE,
}


def offer(
    talk: pb.GenerateRequest.Conversation,
    tools: Sequence[ToolParam],
    choice: ToolChoiceParam | None,
) -> None:
    """Put the tools and the choice into the conversation. Raises Fault."""
    talk.tools.extend(_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools))
    if choice is None:
        return
    names = {tool.name for tool in talk.tools}
    if isinstance(choice, ToolChoiceAnyParam | ToolChoiceToolParam) and not names:
        raise bad_field("tool_choice", "`tool_choice` demands a tool; send `tools`.")
    talk.tool_choice.mode = _MODES[type(choice)]
    talk.tool_choice.single = one_call_only(choice)
    if isinstance(choice, ToolChoiceToolParam):
        if choice.name not in names:
            message = f"`tool_choice.name` is `{choice.name}`, which is not among `tools`."
            raise bad_field("tool_choice.name", message)
        talk.tool_choice.name = choice.name


def one_call_only(choice: ToolChoiceParam | None) -> bool:
    """Whether the answer may hold one call at most."""
    return bool(getattr(choice, "disable_parallel_tool_use", None))


def _tool(tool: ToolParam, at: str) -> pb.Tool:
    if tool.type is not None and tool.type != _HERE:
        where = f"{at}.type"
        message = f"`{where}` is `{tool.type[:64]}`: such tools do not run here; use `custom` ones."
        raise bad_field(where, message)
    if tool.name is None:
        raise bad_field(f"{at}.name", f"`{at}.name` is missing.")
    if isinstance(tool.input_schema, msgspec.UnsetType):
        raise bad_field(f"{at}.input_schema", f"`{at}.input_schema` is missing.")
    if not asks_for_nothing(tool.defer_loading, (None, False)):
        where = f"{at}.defer_loading"
        raise bad_field(where, f"`{where}` is not supported; remove it from the request.")
    return pb.Tool(
        name=tool.name,
        description=tool.description or "",
        parameters_json=object_text(tool.input_schema, f"{at}.input_schema"),
    )
