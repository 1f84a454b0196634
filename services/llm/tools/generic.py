"""Tools for models whose chat template knows none: a conversation in which they are plain text.

The tools become an instruction, calls and results become text in the form that the instruction
asks for. Pure: a conversation in, a conversation without tools out.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from services.llm.values import ChatMessage, Conversation, Role, Tool, ToolCall

_ASKING = (
    "You may call functions. These are the functions you have, one JSON object a line:\n{tools}\n\n"
    "To call one, write exactly this, with the function's name and the arguments that its "
    "parameters ask for, and nothing after it:\n"
    '<tool_call>\n{{"name": "function name", "arguments": {{"parameter": "value"}}}}\n'
    "</tool_call>\n"
    "For several calls write several of these. Results come back as <tool_response> blocks. "
    "When no function helps, answer in plain words."
)


def as_text(conversation: Conversation, *, takes_system: bool) -> Conversation:
    """The same conversation for a template that knows neither tools nor their results.

    Without `takes_system` the instruction stands before the first message of the user.
    """
    messages = [_said(message) for message in _with_results(conversation.messages)]
    if conversation.tools:
        messages = _instructed(messages, instruction(conversation.tools), takes_system)
    return replace(conversation, messages=tuple(messages), tools=())


def instruction(tools: Sequence[Tool]) -> str:
    """What the model is told of its tools."""
    return _ASKING.format(tools="\n".join(_line(tool) for tool in tools))


def _line(tool: Tool) -> str:
    shown: dict[str, Any] = {"name": tool.name}
    if tool.description:
        shown["description"] = tool.description
    shown["parameters"] = tool.parameters or {"type": "object", "properties": {}}
    return json.dumps(shown, ensure_ascii=False)


def _instructed(messages: list[ChatMessage], asking: str, takes_system: bool) -> list[ChatMessage]:
    role = Role.SYSTEM if takes_system else Role.USER
    for i, message in enumerate(messages):
        if message.role is role:
            said = (message.text, asking) if takes_system else (asking, message.text)
            messages[i] = replace(message, text="\n\n".join(filter(None, said)))
            return messages
    return [ChatMessage(role, asking), *messages]


def _with_results(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Results become turns of the user, those in a row one turn: many templates insist on turns
    that alternate.
    """
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    turned: list[ChatMessage] = []
    for role, run in groupby(messages, key=lambda message: message.role):
        if role is Role.TOOL:
            results = (_result(m, m.name or names.get(m.tool_call_id, "")) for m in run)
            turned.append(ChatMessage(Role.USER, "\n".join(results)))
        else:
            turned.extend(run)
    return turned


def _result(message: ChatMessage, name: str) -> str:
    shown = {"name": name, "content": message.text}
    return f"<tool_response>\n{json.dumps(shown, ensure_ascii=False)}\n</tool_response>"


def _said(message: ChatMessage) -> ChatMessage:
    if not message.tool_calls:
        return message
    parts = [message.text, *map(_call, message.tool_calls)]
    return replace(message, text="\n".join(filter(None, parts)), tool_calls=())


def _call(call: ToolCall) -> str:
    arguments = call.arguments_json.strip() or "{}"
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'
