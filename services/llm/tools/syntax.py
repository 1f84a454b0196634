"""The ways in which families of models write a tool call, as a table.

A row says how a call looks; `calls.py` reads by it and `grammar.py` writes by it. A new family that
differs only in its marks is a new row.
"""

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Syntax:
    """How calls look: an opening, one or more calls, a closing."""

    openings: tuple[str, ...] = ()
    """What calls begin with; when a call is demanded, the first of these."""
    closings: tuple[str, ...] = ()
    """What may end calls; the first is written."""
    bare: bool = False
    """An answer that begins with `{` may be a call, with no opening at all."""
    written_bare: bool = False
    """When a call is demanded, it is written without an opening."""
    named: bool = False
    """The name stands before the arguments, not beside them in one object."""
    arguments: str = "arguments"
    """What the arguments are called beside the name."""
    name_end: str = ""
    """What separates a name from the arguments behind it."""
    quote: str = ""
    """What stands around strings in a form that is no JSON; empty: it is JSON."""
    lead: str = ""
    """What is written between an opening and the first call."""
    tail: str = ""
    """What is written between the last call and the closing."""
    between: str = ""
    """What is written between calls, each with its own opening, or in one list."""
    listed: bool = False
    """Several calls stand in one list behind one opening."""
    parallel: bool = True
    """There is a form for several calls."""

    def marks(self) -> tuple[str, ...]:
        """Everything that may be a control token of the vocabulary."""
        return tuple(filter(None, (*self.openings, *self.closings, self.name_end, self.quote)))


HERMES = Syntax(
    ("<tool_call>", "```json\n", "```tool_call\n", "```tool_code\n"),
    ("</tool_call>", "```"),
    bare=True,
    lead="\n",
    tail="\n",
    between="\n",
)
"""Hermes' and Qwen's, and what a model is asked for whose template knows no tools. Small models and
those trained on much code write the object into a code block or bare, whatever they are asked.
"""
LLAMA = Syntax(
    ("<|python_tag|>",), bare=True, arguments="parameters", written_bare=True, parallel=False
)
MISTRAL = Syntax(("[TOOL_CALLS]",), named=True, lead="[", tail="]", between=", ", listed=True)
MISTRAL_NAMED = Syntax(("[TOOL_CALLS]",), named=True, name_end="[ARGS]")
GEMMA_CALL = Syntax(("<|tool_call>",), ("<tool_call|>",), named=True, quote='<|"|>', lead="call:")
GEMMA_FUNCTION = replace(
    GEMMA_CALL,
    openings=("<start_function_call>",),
    closings=("<end_function_call>",),
    quote="<escape>",
)
PHI = Syntax(("<|tool_call|>",), ("<|/tool_call|>",), lead="[", tail="]", between=", ", listed=True)

_LLAMA_HEADER = "<|start_header_id|>"
# Families whose marks look like Hermes' but hold no JSON.
_NO_JSON = re.compile(r"<arg_key>|<function=")


def native(source: str) -> Syntax | None:
    """The form that a template which shows tools was written for; None: no form of the table."""
    if "[TOOL_CALLS]" in source:
        return MISTRAL_NAMED if "[ARGS]" in source else MISTRAL
    for syntax in (GEMMA_CALL, GEMMA_FUNCTION, PHI):
        if syntax.openings[0] in source:
            return syntax
    if "<tool_call>" in source and "arguments" in source and not _NO_JSON.search(source):
        return HERMES
    if "<|python_tag|>" in source or (_LLAMA_HEADER in source and "parameters" in source):
        return LLAMA
    return None
