"""What an engine of language models is, and the values it takes and gives.

The protocol has one adapter over a real library (`engine_llama.py`). Nothing heavy is imported
here: a servicer, a test or another adapter needs only this file. Wire messages stay out.
"""

import math
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from chassis.errors import Fault, Reason

MAX_STOPS = 64
MAX_STOP_BYTES = 256
MAX_LOGIT_BIASES = 1024


class Role(StrEnum):
    """Who said a message; the value is the word that chat templates know."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of a conversation."""

    role: Role
    text: str
    name: str = ""
    reasoning: str = ""
    """What the assistant thought; templates that know it get it as `reasoning_content`."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns to answer; with `continue_last` the last one is continued instead."""

    messages: tuple[ChatMessage, ...]
    continue_last: bool = False
    thinking: bool | None = None
    """Passed to the template as `enable_thinking`; None: as the template has it."""


@dataclass(frozen=True, slots=True)
class BarePrompt:
    """Text that is tokenised as it is, the names of control tokens included."""

    text: str


Prompt = Conversation | BarePrompt


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


@dataclass(frozen=True, slots=True)
class GenerateParams:
    """How an answer is made and where it ends; `max_tokens` 0: what the context leaves."""

    max_tokens: int = 0
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = SamplingParams()
    ignore_eos: bool = False


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted. The model's own end token is not part of the completion."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0
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
class Finish:
    """How an answer ended; `stop` is the stop string that did it."""

    reason: FinishReason
    stop: str
    usage: Usage
    timings: Timings


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Tokens of the prompt that are processed."""

    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """All that became certain since the last one. The last chunk, and only that, has `finish`."""

    text: str = ""
    tokens: int = 0
    prefill: PrefillProgress | None = None
    finish: Finish | None = None


def default_threads() -> int:
    """One core is left to whoever feeds the engine and reads from it."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A model file and the room it gets. Every place is guaranteed its `context_tokens`."""

    path: Path
    context_tokens: int = 0
    """Longest prompt plus answer of one request; 0: what the model was trained for."""
    places: int = 1
    """Requests that run at once; the KV cache holds `places * context_tokens`."""
    threads: int = field(default_factory=default_threads)
    batch_tokens: int = 512
    """Tokens of one native call, at most."""
    prefill_chunk_tokens: int = 64
    """Prompt tokens of one native call while neighbours decode: what they may be held up by."""
    gpu_layers: int = 0
    waiting: int = 64
    """Requests that may wait for a place inside the engine."""
    buffer_tokens: int = 1024
    """Tokens that may pile up before a slow reader is cut off."""

    def __post_init__(self) -> None:
        sizes = (self.places, self.threads, self.batch_tokens, self.prefill_chunk_tokens)
        if min(*sizes, self.waiting, self.buffer_tokens) < 1 or self.context_tokens < 0:
            raise ValueError("places, threads, sizes and bounds of an engine are at least 1")
        if self.places > min(self.batch_tokens, 256):
            raise ValueError("an engine has at most 256 places, and no more than batch_tokens")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of a loaded model."""

    context_tokens: int
    trained_context_tokens: int
    places: int
    vocabulary_tokens: int
    description: str
    weights_mib: int
    kv_cache_mib: int
    template_note: str
    """Empty where the file brings its own chat template, else why ChatML stands in."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Requests inside an engine."""

    running: int
    waiting: int


class Engine(Protocol):
    """A model that answers prompts. All methods but `load` are for the event loop's thread."""

    @property
    def facts(self) -> EngineFacts:
        """Known after `load`."""

    def load(self, progress: Callable[[float], None]) -> None:
        """Load the weights; blocks, so call it on a thread. Raises Fault MODEL_FAILED.

        `progress` gets 0 to 1; an exception it raises ends the load and comes out here.
        """

    @property
    def healthy(self) -> bool:
        """False once the decode loop has failed: nothing will run any more, so end the process."""

    def occupancy(self) -> Occupancy:
        """Requests that hold a place, and that wait for one."""

    def count_tokens(self, prompt: Prompt) -> int:
        """The length of `prompt` as `generate` would see it.

        Raises Fault INVALID_TEMPLATE, and CONTEXT_LENGTH_EXCEEDED for one that cannot fit.
        """

    def generate(self, prompt: Prompt, params: GenerateParams) -> AsyncGenerator[Chunk, None]:
        """Answer `prompt`. Raises Fault before the first chunk or between chunks.

        Ends within one decode step when the iterator is closed or its task is cancelled.
        """

    def close(self) -> None:
        """End all requests and free the model; blocks for at most a decode step or two."""


def _refuse(what: str, expected: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, f"`{what}` must be {expected}.", metadata={"param": what})


def check_params(params: GenerateParams, vocabulary_tokens: int) -> None:
    """Refuse what the native samplers would misread. Raises Fault INVALID_REQUEST."""
    if params.max_tokens < 0:
        raise _refuse("max_tokens", "0 or more")
    if len(params.stop) > MAX_STOPS:
        raise _refuse("stop", f"at most {MAX_STOPS} strings")
    if any(not 0 < len(stop.encode()) <= MAX_STOP_BYTES for stop in params.stop):
        raise _refuse("stop", f"strings of 1 to {MAX_STOP_BYTES} bytes")
    _check_sampling(params.sampling, vocabulary_tokens)


def _check_sampling(s: SamplingParams, vocabulary_tokens: int) -> None:
    ranges = (
        ("temperature", s.temperature, 0.0, 2.0, "from 0 to 2"),
        ("top_p", s.top_p, 1e-6, 1.0, "above 0 and at most 1"),
        ("min_p", s.min_p, 0.0, 1.0, "from 0 to 1"),
        ("typical_p", s.typical_p, 1e-6, 1.0, "above 0 and at most 1"),
        ("repetition_penalty", s.repetition_penalty, 1e-3, 1e3, "above 0 (0.001 to 1000)"),
        ("presence_penalty", s.presence_penalty, -2.0, 2.0, "from -2 to 2"),
        ("frequency_penalty", s.frequency_penalty, -2.0, 2.0, "from -2 to 2"),
    )
    for name, value, low, high, words in ranges:
        if not low <= value <= high:  # NaN too
            raise _refuse(name, words)
    if not 0 <= s.top_k < 2**31:
        raise _refuse("top_k", "0 (all) or more")
    if not 0 <= s.penalty_window_tokens < 2**31:
        raise _refuse("penalty_window_tokens", "0 or more")
    if s.seed is not None and not 0 <= s.seed < 2**64:
        raise _refuse("seed", "from 0 to 2^64 - 1")
    if len(s.logit_bias) > MAX_LOGIT_BIASES:
        raise _refuse("logit_bias", f"of at most {MAX_LOGIT_BIASES} tokens")
    for token, bias in s.logit_bias.items():
        if not 0 <= token < vocabulary_tokens or not math.isfinite(bias):
            raise _refuse("logit_bias", f"finite, by token ids below {vocabulary_tokens}")
