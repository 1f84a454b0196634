"""Which form the answer to a conversation may have, and which it must have.

Between the template, which knows how its model writes, and the vocabulary, which knows what is a
token of its own. Pure; prompts are made in `prompts.py`, answers are read in `reply.py`.
"""

from collections.abc import Callable, Iterable, Sequence

from services.llm import reasoning
from services.llm.parts import ReplyForm
from services.llm.template import ChatTemplate, Segment
from services.llm.tools.grammar import demanded
from services.llm.values import (
    ConstraintKind,
    Conversation,
    OutputConstraint,
    Role,
    ToolMode,
)


class Forms:
    """The forms of one model. `token_of`: the one token that a mark is, if it is one."""

    def __init__(
        self,
        template: ChatTemplate,
        controls: Iterable[str],
        token_of: Callable[[str], int | None],
    ) -> None:
        self._template, self._token_of = template, token_of
        self._controls = frozenset(name for name in controls if name)
        self._think = template.think_marks or reasoning.marks_of(token_of)

    def of(self, conversation: Conversation, prompt: Sequence[Segment]) -> ReplyForm:
        """How the answer to `prompt`, which `conversation` became, is to be read."""
        mode = conversation.tool_choice.mode
        calls = bool(conversation.tools) and mode is not ToolMode.NONE
        syntax = self._template.syntax if calls else None
        marks = list(syntax.marks()) if syntax else []
        if self._think:
            marks += [self._think.opening, self._think.closing]
        return ReplyForm(
            think=self._think,
            thinking=self._begins_inside(conversation, prompt),
            syntax=syntax,
            tools=frozenset(tool.name for tool in conversation.tools) if calls else frozenset(),
            enforced=calls and mode in {ToolMode.REQUIRED, ToolMode.NAMED},
            single=conversation.tool_choice.single,
            visible=frozenset(n for n in self._controls if any(n in mark for mark in marks)),
        )

    def demanded(self, conversation: Conversation, form: ReplyForm) -> OutputConstraint | None:
        """The grammar that a demanded call needs; None: nothing is demanded."""
        if not form.enforced:
            return None
        grammar = demanded(conversation.tools, conversation.tool_choice, form, self._token_of)
        return OutputConstraint(ConstraintKind.LARK, grammar)

    def _begins_inside(self, conversation: Conversation, prompt: Sequence[Segment]) -> bool:
        if self._think is None or not prompt:
            return False
        last = conversation.messages[-1] if conversation.messages else None
        if conversation.continue_last:
            said = last is not None and last.role is Role.ASSISTANT
            return said and reasoning.is_open(last.text, self._think) if last else False
        return prompt[-1].control and reasoning.begins_inside(prompt[-1].text, self._think)
