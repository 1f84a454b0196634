"""Conversation → prompt text, by the chat template that the model file brings.

The template comes with the weights and runs sandboxed and bounded; the messages come from anybody.
A message must not be able to speak with the template's voice, so every name of a control token in
it (`<|im_end|>` and the like) is marked before rendering, and the marked text is tokenised as
plain text afterwards. The marks are Unicode noncharacters, which exist for such internal use; a
message that holds one itself gets U+FFFD in its place. Text without control-token names reaches
the template untouched, so templates that look into messages work as elsewhere.

What the marks do not cover: a name that only comes to be where the template puts two messages'
texts side by side, with nothing in between.

The tokeniser stays out; it gets `Segment`s.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chassis.errors import Fault, Reason
from services.llm.values import ChatMessage, Conversation, Role

MAX_SOURCE_CHARS = 256 * 1024
MAX_RANGE_STEPS = 100_000
"""Loop steps over `range` in one rendering."""
MAX_REPEATED_CHARS = 100_000
TEMPLATE_CHARS = 1 << 20
"""What a template may add to the messages."""

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_MARKED = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_NOTE = (
    "The file brings no chat template; ChatML stands in, the form most open chat models know. "
    "A base model answers bare prompts better."
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt; with `control` the names of control tokens in it are those tokens."""

    text: str
    control: bool


def plain_segments(text: str) -> tuple[Segment, ...]:
    """A bare prompt: all of it with the control tokens it names."""
    return (Segment(text, True),) if text else ()


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, and a bound on what `*` can blow up."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            raise jinja2.TemplateError("powers are not allowed in chat templates")
        for thing, times in ((left, right), (right, left)):
            if isinstance(times, int) and hasattr(thing, "__len__"):
                _bounded(len(thing) * times, MAX_REPEATED_CHARS, "a repetition")
        return super().call_binop(context, operator, left, right)


def _bounded(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise jinja2.TemplateError(f"{what} of {size} is more than the {limit} allowed")


class _Steps:
    """`range`, within one budget for a whole rendering."""

    def __init__(self) -> None:
        self._left = MAX_RANGE_STEPS

    def range(self, *bounds: int) -> range:
        steps = range(*bounds)
        _bounded(len(steps), self._left, "a range")
        self._left -= len(steps)
        return steps


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON; jinja's own filter escapes for HTML, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


@lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    if len(source) > MAX_SOURCE_CHARS:
        raise Fault(Reason.INVALID_TEMPLATE, "The model's chat template is too long to be one.")
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
    return environment.from_string(source)


class ChatTemplate:
    """One model's template. `controls` are the names of its control tokens."""

    def __init__(
        self, source: str | None, *, bos: str = "", eos: str = "", controls: Iterable[str] = ()
    ) -> None:
        self.note = "" if source else CHATML_NOTE
        self._source = source or CHATML
        self._words = {"bos_token": bos, "eos_token": eos}
        names = sorted({name for name in controls if name}, key=len, reverse=True)
        self._controls = re.compile("|".join(map(re.escape, names))) if names else None

    def render(self, conversation: Conversation) -> tuple[Segment, ...]:
        """The prompt. Raises Fault INVALID_TEMPLATE with the template's own message."""
        messages = [self._message(message) for message in conversation.messages]
        limit = TEMPLATE_CHARS + 2 * sum(
            len(text) for message in messages for text in message.values()
        )
        words: dict[str, Any] = {**self._words, "messages": messages, "tools": None}
        words["add_generation_prompt"] = not conversation.continue_last
        if conversation.thinking is not None:
            words["enable_thinking"] = conversation.thinking
        text = _guarded(lambda: self._run(words, limit))
        if conversation.continue_last:
            text = _cut_after_last(text, conversation.messages, messages)
        return _segments(text)

    def _message(self, message: ChatMessage) -> dict[str, Any]:
        fields = {"role": message.role.value, "content": self._marked(message.text)}
        if message.name:
            fields["name"] = self._marked(message.name)
        if message.reasoning and message.role is Role.ASSISTANT:
            fields["reasoning_content"] = self._marked(message.reasoning)
        return fields

    def _marked(self, text: str) -> str:
        text = text.replace(_OPEN, "\ufffd").replace(_CLOSE, "\ufffd")
        if self._controls is None:
            return text
        return self._controls.sub(lambda found: f"{_OPEN}{found[0]}{_CLOSE}", text)

    def _run(self, words: Mapping[str, Any], limit_chars: int) -> str:
        parts, size = [], 0
        for part in _compiled(self._source).generate(**words, range=_Steps().range):
            size += len(part)
            _bounded(size, limit_chars, "a prompt")
            parts.append(part)
        return "".join(parts)


def _guarded(run: Callable[[], str]) -> str:
    try:
        return run()
    except Fault:
        raise
    except Exception as error:  # whatever the template's code can do wrong
        said = str(error).rstrip(".")[:500]
        raise Fault(
            Reason.INVALID_TEMPLATE,
            f"The model's chat template refuses this conversation: {said}.",
        ) from None


def _cut_after_last(text: str, said: tuple[ChatMessage, ...], marked: list[dict[str, Any]]) -> str:
    if not said or said[-1].role is not Role.ASSISTANT:
        raise Fault(
            Reason.INVALID_REQUEST, "Only a conversation that ends with the assistant can go on."
        )
    last = marked[-1]["content"]
    for form in (last, last.strip()):
        at = text.rfind(form)
        if form and at >= 0:
            return text[: at + len(form)]
    raise Fault(
        Reason.INVALID_TEMPLATE,
        "The model's chat template does not show the last message as it is, so it cannot go on.",
    )


def _segments(text: str) -> tuple[Segment, ...]:
    # re.split with one group: template text and marked text take turns.
    pieces = _MARKED.split(text)
    return tuple(Segment(piece, i % 2 == 0) for i, piece in enumerate(pieces) if piece)
