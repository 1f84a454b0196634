"""What an engine of language models is, and what it is made with.

The protocol has one adapter over a real library (`engine_llama.py`). Nothing heavy is imported
here: a servicer, a test or another adapter needs only this file. Wire messages stay out.
"""

import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from services.llm.values import Chunk, GenerateParams, Prompt

KvType = Literal["f16", "q8_0"]
"""How keys and values are kept in the cache."""
Speculation = Literal["off", "lookup", "draft"]
"""Which tokens are tried ahead. `lookup`: what followed the same words earlier in the text.
`draft`: what a smaller model takes to be next.
"""
DRAFT = "draft"
"""What the memory of a draft model is called among a model's extras."""
CacheScope = Literal["global", "key"]
"""Among whom a prefix is shared: everybody, or the requests of one fairness key."""
ALL_LAYERS = -1
MOST_PLACES = 256
MOST_COPIED_MIB = 128
"""Of a KV cache, to put it in order; a larger one loses the order of its cells instead."""


def default_threads(spare_cores: int = 1) -> int:
    """One core is left to whoever feeds the engine and reads from it."""
    return max(1, len(os.sched_getaffinity(0)) - spare_cores)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A model file and the room it gets. Every place is guaranteed its `context_tokens`."""

    path: Path
    context_tokens: int = 0
    """Longest prompt plus answer of one request; 0: what the model was trained for."""
    places: int = 1
    """Requests that run at once; the KV cache holds `places * context_tokens`."""
    threads: int = field(default_factory=default_threads)
    batch_tokens: int = 60
    """Tokens of one native call, at most."""
    ubatch_tokens: int = 60
    """Tokens of one pass over the device within a native call; at most `batch_tokens` count."""
    prefill_chunk_tokens: int = 56
    """Prompt tokens of one native call while neighbours decode: what they may be held up by."""
    gpu_layers: int = 0
    """Layers kept on the card; ALL_LAYERS: every one, the output layer included."""
    kv_type: KvType = "f16"
    flash_attention: bool | None = None
    """None: where the native library finds it worth while; a q8_0 cache needs it."""
    cache_tokens: int = 0
    """Size of the KV cache; 0: `places * context_tokens`. Less, and the youngest may be parked."""
    idle_cache_tokens: int = 0
    """Cells of the KV cache that prefixes of finished requests may keep: idle ones slow decoding
    down where memory is slow."""
    ordered_cells: bool = True
    """A sequence's cells keep the order of its tokens: on the CPU its answer is then the same, to
    the last bit, whoever comes and goes beside it."""
    prefix_cache_mib: int = 256
    """Host memory for prefixes and parked requests that have left the KV cache; 0: none."""
    cache_scope: CacheScope = "global"
    speculation: Speculation = "off"
    draft_tokens: int = 4
    """Tokens tried ahead of one step, at most."""
    draft_path: Path | None = None
    """The file of the draft model; there when `speculation` is draft."""
    draft_gpu_layers: int = 0
    """As `gpu_layers`, of the draft model."""
    profile: str = "cpu"
    """The device profile that the figures come from; shown, and nothing else."""
    placement_why: str = ""
    """One sentence: why `gpu_layers` is what it is."""
    allow_cpu_fallback: bool = False
    """Load on the CPU, and say so, where layers were meant for a card that is not there."""
    waiting: int = 64
    """Requests that may wait for a place inside the engine."""
    buffer_tokens: int = 1024
    """Tokens that may pile up before a slow reader is cut off."""

    def __post_init__(self) -> None:
        sizes = (self.places, self.threads, self.batch_tokens, self.prefill_chunk_tokens)
        bounds = (self.ubatch_tokens, self.waiting, self.buffer_tokens, self.draft_tokens)
        if min(*sizes, *bounds) < 1:
            raise ValueError("places, threads, sizes and bounds of an engine are at least 1")
        caches = (self.cache_tokens, self.idle_cache_tokens, self.prefix_cache_mib)
        layers = min(self.gpu_layers, self.draft_gpu_layers)
        if min(self.context_tokens, *caches) < 0 or layers < ALL_LAYERS:
            raise ValueError("contexts, caches and layers of an engine are not negative")
        if self.kv_type != "f16" and self.flash_attention is False:
            raise ValueError(f"a KV cache of {self.kv_type} needs flash attention")
        if self.speculation == "draft" and self.draft_path is None:
            raise ValueError("speculation by a draft model needs its file")
        if self.places > min(self.batch_tokens, MOST_PLACES):
            most = f"at most {MOST_PLACES} places, and no more than batch_tokens"
            raise ValueError(f"an engine has {most}")


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
    thinks: bool = False
    """Thinking can be turned on and off by request."""
    infills: bool = False
    """A prompt with a suffix is filled in."""
    translates: bool = False
    """Its template has a form for texts to translate."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Requests inside an engine."""

    running: int
    waiting: int
    parked: int = 0
    """Taken out of a full KV cache, to go on later."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a KV cache holds; exact while nothing runs."""

    cells: int
    used_cells: int
    """Each counted once, however many share it."""
    idle_cells: int
    """Of these, what prefixes of finished requests hold."""
    sequences: int
    free_sequences: int
    idle_prefixes: int
    parked_prefixes: int
    """Those in host memory."""
    parked_bytes: int
    """Host memory of parked prefixes and answers."""


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

    def holdings(self) -> Holdings:
        """What its KV cache holds."""

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
