"""A demanded form, checked and bounded, said as a grammar for the matcher and compiled.

`Unfit` says what is wrong with it in one sentence. Vocabularies and the state of answers stay out.
"""

import json
import re
from collections.abc import Callable

from llguidance import LLMatcher, regex_to_lark

from services.llm.gbnf_lark import lark_of
from services.llm.regex_bounds import weigh
from services.llm.schema_blame import blamed
from services.llm.schema_check import Check, Schema, parse
from services.llm.schema_choices import told_apart
from services.llm.schema_closed import closed
from services.llm.schema_ends import check_ends
from services.llm.unfit import Unfit, unfit
from services.llm.values import ConstraintKind, OutputConstraint

MAX_REGEX_BYTES = 8192
MAX_LARK_BYTES = 1 << 20

# Where only one text can follow, the model still chooses how to split it into tokens.
_UNFORCED = '%llguidance {"no_forcing": true}\n'

# One blank, or a line break and an indent. Without a bound a model may write blanks for ever.
_STYLE = {"x-guidance": {"whitespace_pattern": r"[ ]|\r?\n([ ]{0,64}|\t{0,16})"}}

_SAID = (
    ("NoExtension", "nothing can fulfil it"),
    ("Unsatisfiable schema: Regex is empty", "its pattern, format and lengths exclude each other"),
    ("Unable to determine if regex is empty", "its pattern and lengths together are too complex"),
    ("oneOf constraints are not", "its choices may hold at once; tell them apart or say `anyOf`"),
)
"""Complaints of the matcher that say too much of its inside."""

Compile = Callable[[str], LLMatcher]
"""Of Lark. Never raises: a matcher may be in error."""


def compiled(output: OutputConstraint, compile_: Compile) -> LLMatcher:
    """The form at its beginning. Raises Unfit."""
    match output.kind:
        case ConstraintKind.JSON_OBJECT:
            return _whole("form", compile_(_json({"type": "object"})))
        case ConstraintKind.JSON_SCHEMA:
            return _schema(output.source, compile_)
        case ConstraintKind.GRAMMAR:
            return _whole("grammar", compile_(_UNFORCED + lark_of(output.source)))
        case ConstraintKind.REGEX:
            return _whole("regular expression", compile_(_regex(output.source)))
        case ConstraintKind.LARK:
            return _whole("form", compile_(_lark(output.source)))


def checked(source: str) -> tuple[Schema, int]:
    """A schema without remarks, bounded, that something finite may fulfil, and how many parts it
    has. Raises Unfit.
    """
    check = Check()
    schema = check.run(parse(source))
    if schema is False:
        raise unfit((), "is `false`: nothing can fulfil it")
    check_ends(check.schemas)
    told_apart(check.schemas)
    return schema, len(check.schemas)


def _schema(source: str, compile_: Compile) -> LLMatcher:
    schema, parts = checked(source)
    matcher = compile_(_json(schema))
    if _complaint(matcher):
        path, said = blamed(
            schema,
            lambda part: _complaint(compile_(_json(part))),
            trials=max(4, min(128, 8000 // parts)),  # a large one takes longer to compile
        )
        raise unfit(path, f"cannot be compiled: {_cause(said)}")
    return matcher


def _json(schema: Schema) -> str:
    words = closed(schema) if isinstance(schema, dict) else {}
    return f"{_UNFORCED}start: %json {json.dumps(words | _STYLE)}"


def _regex(source: str) -> str:
    if len(source.encode("utf-8", "replace")) > MAX_REGEX_BYTES:
        raise Unfit(f"The regular expression is longer than {MAX_REGEX_BYTES} bytes; shorten it.")
    try:
        weigh(source)
    except Unfit as error:
        raise Unfit(f"The regular expression cannot be used: {error}.") from None
    return f"{_UNFORCED}start: /{regex_to_lark(source, '')}/"


def _lark(source: str) -> str:
    if len(source.encode("utf-8", "replace")) > MAX_LARK_BYTES:
        raise Unfit(f"The form is larger than {MAX_LARK_BYTES >> 20} MiB; offer fewer tools.")
    return _UNFORCED + source


def _whole(what: str, matcher: LLMatcher) -> LLMatcher:
    if said := _complaint(matcher):
        raise Unfit(f"The {what} cannot be used: {_cause(said)}.")
    return matcher


def _complaint(matcher: LLMatcher) -> str:
    """What speaks against it: its own error, or that no token can come first."""
    if matcher.is_error():
        return matcher.get_error()
    trial = matcher.deep_copy()
    try:
        begins = any(trial.compute_bitmask())
    except ValueError as error:
        return str(error)
    return trial.get_error() if begins else "NoExtension"


def _cause(said: str) -> str:
    """The matcher's complaint in one line."""
    said = said.partition("\n<")[0]  # what follows is its inner state
    errors = re.findall(r"^error: (.+)$", said, re.MULTILINE)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    lines = [re.sub(r"^at \d+\(\d+\): (failed to compile JSON schema: )?", "", s) for s in lines]
    line = errors[-1] if errors else lines[0] if lines else "it cannot be fulfilled"
    for theirs, ours in _SAID:
        if line.startswith(theirs):
            return ours
    return line.replace("Unsatisfiable schema: ", "nothing can fulfil it: ")[:200].rstrip(". ")
