"""A grammar that makes a model call tools, in the way it was trained to.

llguidance's Lark: fixed text in the family's form, and `%json` for the arguments, by each tool's
own schema. A mark that is a token of its own in the vocabulary is that token in the grammar, for
spelled out in letters it would not be what the model knows. Compiling and checking it belong to
whoever constrains the output. Pure: text out.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from services.llm.parts import ReplyForm
from services.llm.reasoning import ThinkMarks
from services.llm.schema_closed import closed
from services.llm.tools.quoted_grammar import QuotedRules
from services.llm.tools.syntax import Syntax
from services.llm.values import Tool, ToolChoice, ToolMode

MAX_CALLS = 16
"""In one answer that must call: a model that knows no end comes to one."""

TokenOf = Callable[[str], int | None]
"""The one token that a mark is; None: it is spelled out."""

_MARK = re.compile(r"(<[^<>]+>|\[[A-Z_/]+\])")
# As templates show calls; and no endless white space, into which small models fall.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# A tool's schema describes; that a keyword of it cannot be enforced is no reason to refuse.
_OPTIONS = {"x-guidance": {**_LAYOUT, "lenient": True}}


def demanded(tools: Sequence[Tool], choice: ToolChoice, form: ReplyForm, token_of: TokenOf) -> str:
    """The grammar for an answer of nothing but calls: one for NAMED, one or more for REQUIRED."""
    syntax = form.syntax
    assert syntax is not None  # noqa: S101  tools are on offer
    if choice.mode is ToolMode.NAMED:
        tools = [tool for tool in tools if tool.name == choice.name]
    many = choice.mode is ToolMode.REQUIRED and syntax.parallel and not choice.single
    alternatives, rules = _tools(tools, syntax, token_of)
    if form.think:
        rules.append(_thinking(form.think, token_of))
    return "\n".join(
        [
            "%llguidance {}",
            f"start: {_thought(form, token_of)}{_calls(syntax, many, token_of)}",
            f"call: {' | '.join(alternatives)}",
            *rules,
            "TEXT: /(.|\\n)+/",
            "",
        ]
    )


def _tools(tools: Sequence[Tool], syntax: Syntax, token_of: TokenOf) -> tuple[list[str], list[str]]:
    """A call of each tool, and the rules that these need."""
    if not syntax.quote:
        return [_call(tool, syntax, token_of) for tool in tools], []
    is_token = token_of(syntax.quote) is not None
    quoted = QuotedRules(_spelled(syntax.quote, token_of), is_token=is_token)
    return [f"{literal(t.name)} {quoted.of(_schema(t))}" for t in tools], quoted.rules


def literal(text: str) -> str:
    """Text as a string of the grammar."""
    return json.dumps(text)


def _calls(syntax: Syntax, many: bool, token_of: TokenOf) -> str:
    opening = "" if syntax.written_bare else _spelled(syntax.openings[0], token_of)
    closing = _spelled("".join(syntax.closings[:1]), token_of)
    more = f"{{0,{MAX_CALLS - 1}}}"
    lead, tail = _optional_space(syntax), literal(syntax.tail) if syntax.tail else ""
    between = literal(syntax.between) if syntax.between else ""
    if syntax.listed:
        again = f" ({between} call){more}" if many else ""
        return " ".join(filter(None, (opening, lead, f"call{again}", tail, closing)))
    one = " ".join(filter(None, (opening, lead, "call", tail, closing)))
    return f"{one} ({between} {one}){more}" if many else one


def _optional_space(syntax: Syntax) -> str:
    """Some tokenisers put a space behind the token of a list's opening, some do not."""
    lead = literal(syntax.lead) if syntax.lead else ""
    return f'" "? {lead}' if syntax.listed else lead


def _call(tool: Tool, syntax: Syntax, token_of: TokenOf) -> str:
    arguments = f"%json {json.dumps(_schema(tool) | _OPTIONS)}"
    if syntax.name_end:
        return f"{literal(tool.name)} {_spelled(syntax.name_end, token_of)} {arguments}"
    name = json.dumps(tool.name, ensure_ascii=False)
    head = f'{{"name": {name}, "{syntax.arguments}": '
    return f'{literal(head)} {arguments} "}}"'


def _schema(tool: Tool) -> dict[str, Any]:
    if not tool.parameters:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema: dict[str, Any] = closed({"type": "object", **tool.parameters})
    return schema


def _spelled(mark: str, token_of: TokenOf) -> str:
    """A mark, as tokens of its own where there are such, and as text."""
    pieces = [piece for piece in _MARK.split(mark) if piece]
    return " ".join(_piece(piece, token_of(piece)) for piece in pieces)


def _piece(piece: str, token: int | None) -> str:
    return literal(piece) if token is None else f"(<[{token}]> | {literal(piece)})"


def _thought(form: ReplyForm, token_of: TokenOf) -> str:
    if form.think is None:
        return ""
    if form.thinking:
        return "thought "
    return f"({_spelled(form.think.opening, token_of)} thought)? "


def _thinking(marks: ThinkMarks, token_of: TokenOf) -> str:
    token = token_of(marks.closing)
    if token is not None:
        return f"thought: TEXT? <[{token}]> /\\n{{0,2}}/"
    return f"thought: thinking /\\n{{0,2}}/\nthinking[suffix={literal(marks.closing)}]: /(.|\\n)*/"
