"""Prompt → tokens, for one model: conversations by its template, bare text, gaps to fill.

Bounds come first: what cannot fit whatever its tokens are is refused before any work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from services.llm.forms import Forms
from services.llm.llama_api import Model, Vocabulary
from services.llm.parts import ReplyForm
from services.llm.template import ChatTemplate, Segment, plain_segments
from services.llm.values import (
    BarePrompt,
    ChatMessage,
    Conversation,
    OutputConstraint,
    Prompt,
    TokenPrompt,
    Tool,
    ToolMode,
)

MESSAGE_CHARS = 64
"""What a message or a tool costs to render, however short it is."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt as the model gets it, and how to read what it answers."""

    tokens: list[int]
    form: ReplyForm
    output: OutputConstraint | None = None
    """What the prompt itself demands of the answer: a tool call, say."""


class Prompts:
    """Prompt → tokens, for one model."""

    def __init__(self, model: Model) -> None:
        self.vocabulary: Vocabulary = model.vocabulary
        controls = self.vocabulary.controls()
        self.template = ChatTemplate(
            model.chat_template,
            bos=self.vocabulary.bos_text,
            eos=self.vocabulary.eos_text,
            controls=controls,
        )
        self._forms = Forms(self.template, controls, self._token_of)
        self._longest_token_bytes = self.vocabulary.longest_token_bytes()

    def check_fits(self, prompt: Prompt, context_tokens: int) -> None:
        """Refuse, before any work, what is too long whatever its tokens are.

        Raises Fault CONTEXT_LENGTH_EXCEEDED. A text of n bytes has at least n / (bytes of the
        longest token) tokens; tokenising megabytes only to refuse them would hold up others.
        """
        at_least = _text_bytes(prompt) // self._longest_token_bytes
        if at_least > context_tokens:
            raise Fault(
                Reason.CONTEXT_LENGTH_EXCEEDED,
                f"This model's context is {context_tokens} tokens, but the prompt has more than "
                f"{at_least}; shorten it.",
                metadata={"context_tokens": str(context_tokens)},
            )

    def prepare(self, prompt: Prompt) -> Prepared:
        """Raises Fault INVALID_TEMPLATE, or INVALID_REQUEST for what this model cannot do."""
        if not isinstance(prompt, Conversation):
            return Prepared(self.tokens(prompt), ReplyForm())
        segments = self.template.render(prompt)
        form = self._forms.of(prompt, segments)
        demanded = self._forms.demanded(prompt, form)
        return Prepared(self.vocabulary.tokens(segments), form, demanded)

    def tokens(self, prompt: Prompt) -> list[int]:
        """As `prepare`, where nobody answers."""
        if isinstance(prompt, TokenPrompt):
            return self._known(prompt.tokens)
        if isinstance(prompt, Conversation):
            return self.vocabulary.tokens(self.template.render(prompt))
        if prompt.suffix:
            return self._infill(prompt)
        return self.vocabulary.tokens(plain_segments(prompt.text))

    def visible(self, form: ReplyForm) -> dict[int, bytes]:
        """The control tokens that this form is read by, with the bytes to read."""
        tokens = ((self._token_of(name), name.encode()) for name in form.visible)
        return {token: data for token, data in tokens if token is not None}

    @property
    def knows_thinking(self) -> bool:
        """It can be told to think, or not to."""
        return self.template.think_marks is not None

    @property
    def knows_translation(self) -> bool:
        """It has a form for texts to translate."""
        return self.template.knows_translation

    def _token_of(self, mark: str) -> int | None:
        tokens = self.vocabulary.tokens([Segment(mark, True)], beginning=False)
        return tokens[0] if len(tokens) == 1 else None

    def _known(self, tokens: Sequence[int]) -> list[int]:
        size = self.vocabulary.size
        if wrong := next((t for t in tokens if not 0 <= t < size), None):
            raise Fault(
                Reason.INVALID_REQUEST,
                f"The prompt holds the token {wrong}; this model's tokens are 0 to {size - 1}.",
                metadata={"param": "prompt"},
            )
        return list(tokens)

    def _infill(self, prompt: BarePrompt) -> list[int]:
        """Prefix, suffix, middle: the order that models which know all three were trained on."""
        marks = self.vocabulary.infill_marks()
        if marks is None:
            raise Fault(
                Reason.INVALID_REQUEST,
                "This model was not trained to fill a gap; send the prompt without `suffix`.",
                metadata={"param": "suffix"},
            )
        before = self.vocabulary.tokens(plain_segments(prompt.text), beginning=False)
        behind = self.vocabulary.tokens(plain_segments(prompt.suffix), beginning=False)
        tokens = [marks.prefix, *before, marks.suffix, *behind, marks.middle]
        return [*self.vocabulary.beginning, *tokens]


def _text_bytes(prompt: Prompt) -> int:
    """Bytes of text that every template keeps; at least."""
    if isinstance(prompt, TokenPrompt):
        return 0
    if isinstance(prompt, BarePrompt):
        return len(prompt.text) + len(prompt.suffix)
    told = sum(len(tool.description) for tool in prompt.tools)
    shown = prompt.tool_choice.mode is not ToolMode.NONE
    return sum(map(_kept_bytes, prompt.messages)) + (told if shown else 0)


def _kept_bytes(message: ChatMessage) -> int:
    """Calls and thoughts are not counted: a template may leave those of earlier turns out."""
    return len(message.translation.text if message.translation else message.text)


def chars_of(prompt: Prompt) -> int:
    """What it costs to turn a prompt into tokens, in characters of text."""
    if isinstance(prompt, TokenPrompt):
        return 0
    if isinstance(prompt, BarePrompt):
        return len(prompt.text) + len(prompt.suffix)
    return sum(map(_message_chars, prompt.messages)) + sum(map(_tool_chars, prompt.tools))


def _message_chars(message: ChatMessage) -> int:
    said = len(message.text) + len(message.reasoning) + len(message.name)
    called = sum(
        len(call.name) + len(call.arguments_json) + MESSAGE_CHARS for call in message.tool_calls
    )
    translated = len(message.translation.text) if message.translation else 0
    return said + called + translated + len(message.tool_call_id) + MESSAGE_CHARS


def _tool_chars(tool: Tool) -> int:
    return len(tool.name) + len(tool.description) + len(str(tool.parameters)) + MESSAGE_CHARS
