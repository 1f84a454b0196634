"""What engines of language models take and give: prompts, parameters, answers. Plain values.

Nothing here knows a wire, a library or a thread; every room of the service speaks in these words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any


class Role(StrEnum):
    """Who said a message; the value is the word that chat templates know."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made; `arguments_json` is JSON text, of an object."""

    id: str
    name: str
    arguments_json: str


class ToolMode(StrEnum):
    """Whether the model may, must or must not call tools."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`name` is the tool, for NAMED."""

    mode: ToolMode = ToolMode.AUTO
    name: str = ""
    single: bool = False
    """The answer ends behind its first call."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A text to translate; an empty source language: whatever each part of it is written in."""

    text: str
    source_lang_code: str
    target_lang_code: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: Role
    text: str
    name: str = ""
    reasoning: str = ""
    """What the assistant thought; templates that know it get it as `reasoning_content`."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant called in this turn."""
    tool_call_id: str = ""
    """Which call a message of role TOOL answers."""
    translation: Translation | None = None
    """Instead of `text`, for templates that know it."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns to answer; with `continue_last` the last one is continued instead."""

    messages: tuple[ChatMessage, ...]
    continue_last: bool = False
    thinking: bool | None = None
    """Whether the model may think before it answers; None: as the template has it."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()


@dataclass(frozen=True, slots=True)
class BarePrompt:
    """Text that is tokenised as it is, the names of control tokens included.

    With a `suffix` the answer fills the gap between the two.
    """

    text: str
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Tokens, taken as they are."""

    tokens: tuple[int, ...]


Prompt = Conversation | BarePrompt | TokenPrompt


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen; the samplers apply in llama.cpp's own order."""

    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    penalty_window_tokens: int = 64


class ConstraintKind(StrEnum):
    """The languages in which an answer's form can be demanded."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    GRAMMAR = "grammar"
    """GBNF, as llama.cpp has it."""
    REGEX = "regex"
    LARK = "lark"
    """The house's own, for tool calls; not on the wire."""


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """What the answer must look like; `source` is the schema, the grammar or the expression."""

    kind: ConstraintKind
    source: str = ""


class Tier(IntEnum):
    """How urgent a request is; the values are those of cohabit.common.v1.Tier."""

    UNSPECIFIED = 0
    BACKGROUND = 1
    FREE = 2
    SUB = 3
    PAID = 4


@dataclass(frozen=True, slots=True)
class GenerateParams:
    """How an answer is made and where it ends; `max_tokens` 0: what the context leaves."""

    max_tokens: int = 0
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = SamplingParams()
    ignore_eos: bool = False
    choices: int = 1
    """Answers to the same prompt."""
    logprobs: bool = False
    top_logprobs: int = 0
    output: OutputConstraint | None = None
    max_sentences: int = 0
    """End after this many sentences; 0: no such limit."""
    min_probability: float = 0.0
    """End when the chosen token is less likely than this; 0: no such limit."""
    cache_scope: str = ""
    """Whose cached prefixes may be reused; empty: everybody's."""
    tier: Tier = Tier.UNSPECIFIED


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted. The model's own end token is not part of the completion."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0
    """Of the prompt, taken from the prefix cache."""
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time went; the words are those of the contract."""

    tokenize_ms: float
    engine_wait_ms: float
    prefill_ms: float
    first_token_ms: float
    decode_ms: float


@dataclass(frozen=True, slots=True)
class Speculation:
    """What guessing ahead saved."""

    drafted_tokens: int
    accepted_tokens: int
    saved_calls: int


@dataclass(frozen=True, slots=True)
class Finish:
    """How an answer ended; `stop` is the stop string that did it."""

    reason: FinishReason
    stop: str
    usage: Usage
    timings: Timings
    speculation: Speculation | None = None


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Tokens of the prompt that are processed."""

    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token and its natural log-probability."""

    token: int
    text: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely a token was, and which others were most likely, best first."""

    chosen: Candidate
    top: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call; `id` and `name` stand in its first piece."""

    index: int
    id: str = ""
    name: str = ""
    arguments_json: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """All that became certain since the last one. The last of a choice, and only that, has
    `finish`.
    """

    text: str = ""
    tokens: int = 0
    prefill: PrefillProgress | None = None
    finish: Finish | None = None
    choice: int = 0
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
