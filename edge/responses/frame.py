"""What of a request stands in its response again: the object before anything is answered. Pure."""

from typing import Literal

from msgspec import Raw

from edge.responses.body import (
    ReasoningOptions,
    ResponsesBody,
    ResponseTool,
    TextFormat,
    TextOptions,
    ToolWish,
)
from edge.responses.objects import ResponseObject, ToolChoiceEcho, ToolEcho


def framed(
    body: ResponsesBody, tools: tuple[ResponseTool, ...], name: str, created_s: int
) -> ResponseObject:
    """The response `name` to an understood request, in progress and empty."""
    text = body.text
    return ResponseObject(
        id=name,
        created_at=created_s,
        model=body.model,
        previous_response_id=body.previous_response_id,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_logprobs=body.top_logprobs or 0,
        tools=[_tool(tool) for tool in tools],
        tool_choice=_choice(body),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        text=TextOptions(
            format=(text.format if text is not None else None) or TextFormat("text"),
            verbosity=text.verbosity if text is not None else None,
        ),
        reasoning=body.reasoning or ReasoningOptions(),
        metadata=body.metadata or {},
        user=body.user,
        store=body.store is not False,
    )


def _tool(tool: ResponseTool) -> ToolEcho:
    parameters = tool.parameters if isinstance(tool.parameters, Raw) else Raw(b"null")
    return ToolEcho(tool.type, tool.name, tool.description, parameters, tool.strict)


def _choice(body: ResponsesBody) -> Literal["none", "auto", "required"] | ToolChoiceEcho:
    choice = body.tool_choice
    if isinstance(choice, ToolWish):
        return ToolChoiceEcho("function", choice.name)
    return choice or "auto"
