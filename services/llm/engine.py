"""What an engine of language models is, and what it is made with.

The protocol has one adapter over a real library (`engine_llama.py`). Nothing heavy is imported
here: a servicer, a test or another adapter needs only this file. Wire messages stay out.
"""

import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from services.llm.values import Chunk, GenerateParams, Prompt


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
