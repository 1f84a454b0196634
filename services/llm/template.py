"""Conversation → prompt text, by the chat template that the model file brings.

The template comes with the weights and runs sandboxed and bounded (`sandbox.py`); the messages come
from anybody, and are marked so that they cannot speak with the template's voice (`marks.py`). Which
tools a template shows is found out by showing it one; a template that shows none, or writes calls
in a way nobody here can read, gets its tools as plain text (`tools/generic.py`).

The tokeniser stays out; it gets `Segment`s. How the answer is read is `forms.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from chassis.errors import Fault, Reason
from services.llm import reasoning, sandbox
from services.llm.marks import Marks, pieces
from services.llm.tools import generic, syntax
from services.llm.tools.syntax import Syntax
from services.llm.turns import Turns
from services.llm.values import ChatMessage, Conversation, Role, Tool, ToolMode

TEMPLATE_CHARS = 1 << 20
"""What a template may add to the messages."""
QUOTED_CHARS = 6
"""What one character becomes at most where a template quotes it: `\\u00e9`."""
VALUE_CHARS = 8
"""What a template may write around each value of a tool's schema."""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_NOTE = (
    "The file brings no chat template; ChatML stands in, the form most open chat models know. "
    "A base model answers bare prompts better."
)
_PROBE = "probe_of_the_template"


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt; with `control` the names of control tokens in it are those tokens."""

    text: str
    control: bool


def plain_segments(text: str) -> tuple[Segment, ...]:
    """A bare prompt: all of it with the control tokens it names."""
    return (Segment(text, True),) if text else ()


class ChatTemplate:
    """One model's template. `controls` are the names of its control tokens."""

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", controls: Iterable[str] = ()
    ) -> None:
        self.note = "" if source else CHATML_NOTE
        self.source = source or CHATML
        self._words = {"bos_token": bos, "eos_token": eos}
        self._turns = Turns(self.source, Marks(controls))
        self.think_marks = reasoning.marks_in(self.source)
        """How the model marks its thoughts; None: the template knows of none."""
        self.knows_translation = self._turns.knows_translation
        """It has a form for texts to translate."""

    def render(self, conversation: Conversation) -> tuple[Segment, ...]:
        """The prompt. Raises Fault INVALID_TEMPLATE with the template's own message, or
        INVALID_REQUEST for what this template has no form for.
        """
        conversation = self._as_known(conversation)
        messages = self._turns.messages(conversation.messages)
        tools = self._turns.tools(conversation.tools) or None
        words: dict[str, Any] = {**self._words, "messages": messages, "tools": tools}
        words["add_generation_prompt"] = not conversation.continue_last
        if conversation.thinking is not None:
            words["enable_thinking"] = conversation.thinking
        limit_chars = TEMPLATE_CHARS + QUOTED_CHARS * _chars((messages, tools))
        text = sandbox.run(self.source, words, limit_chars)
        if conversation.continue_last:
            text = _cut_after_last(text, conversation.messages, messages)
        elif conversation.thinking is False:
            text += self._closed_thought(text)
        return tuple(Segment(piece, control) for piece, control in pieces(text))

    @cached_property
    def syntax(self) -> Syntax:
        """How the model writes calls, with its own template or asked in plain words."""
        return self._native or syntax.HERMES

    @cached_property
    def _native(self) -> Syntax | None:
        """None: the template shows no tools, or its model writes calls in an unknown way."""
        known = syntax.native(self.source)
        probe = Conversation((_user("?"),), tools=(Tool(_PROBE),))
        return known if known is not None and self._shows(probe) else None

    @cached_property
    def _takes_system(self) -> bool:
        return self._shows(Conversation((ChatMessage(Role.SYSTEM, _PROBE), _user("?"))))

    def _shows(self, probe: Conversation) -> bool:
        words: dict[str, Any] = {**self._words, "add_generation_prompt": True}
        words["messages"] = self._turns.messages(probe.messages)
        words["tools"] = self._turns.tools(probe.tools) or None
        try:
            return _PROBE in sandbox.run(self.source, words, TEMPLATE_CHARS)
        except Fault:
            return False

    def _as_known(self, conversation: Conversation) -> Conversation:
        if conversation.tool_choice.mode is ToolMode.NONE and conversation.tools:
            conversation = replace(conversation, tools=())
        if not _has_tools(conversation) or self._native is not None:
            return conversation
        return generic.as_text(conversation, takes_system=self._takes_system)

    def _closed_thought(self, prompt: str) -> str:
        """Templates without a switch: a thought that is over already, or the end of one that the
        template began.
        """
        marks = self.think_marks
        if marks is None or reasoning.is_switch(self.source):
            return ""
        if reasoning.begins_inside(prompt, marks):
            return marks.empty.removeprefix(marks.opening).removeprefix("\n")
        return marks.empty


def _user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text)


def _has_tools(conversation: Conversation) -> bool:
    return bool(conversation.tools) or any(
        message.tool_calls or message.role is Role.TOOL for message in conversation.messages
    )


def _chars(value: Any) -> int:
    """Room for every value of a conversation, however a template quotes it."""
    if isinstance(value, str):
        return len(value) + VALUE_CHARS
    if isinstance(value, dict):
        return _chars(tuple(value)) + _chars(tuple(value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_chars, value))
    return VALUE_CHARS


def _cut_after_last(text: str, said: Sequence[ChatMessage], marked: list[dict[str, Any]]) -> str:
    if not said or said[-1].role is not Role.ASSISTANT:
        raise Fault(
            Reason.INVALID_REQUEST, "Only a conversation that ends with the assistant can go on."
        )
    last = marked[-1]["content"] or ""
    for form in (last, last.strip()):
        at = text.rfind(form)
        if form and at >= 0:
            return text[: at + len(form)]
    raise Fault(
        Reason.INVALID_TEMPLATE,
        "The model's chat template does not show the last message as it is, so it cannot go on.",
    )
