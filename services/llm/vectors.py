"""What an engine of vectors is, and what it is made with: embedding models and rerankers.

The protocol has one adapter over a real library (`engine_vectors.py`). Nothing heavy is imported
here; wire messages stay out, and so do language models, which are `engine.py`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from chassis.errors import Fault, Reason
from services.llm.engine import default_threads

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TEXTS = 256
"""Of one request; also the sequences of one native call."""
DEFAULT_CONTEXT_TOKENS = 2048
"""Longest text unless configured: a call holds whole texts, and its buffers grow with them."""

Text = str | tuple[int, ...]
"""What to embed: text, or tokens taken as they are."""


class VectorKind(StrEnum):
    """What a model without an answer is for."""

    EMBEDDING = "embedding"
    RERANKER = "reranker"


class Pooling(StrEnum):
    """How one vector comes of the vectors of all tokens; AUTO: as the file says."""

    AUTO = "auto"
    MEAN = "mean"
    CLS = "cls"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class VectorSpec:
    """A model file and the room it gets."""

    path: Path
    kind: VectorKind = VectorKind.EMBEDDING
    pooling: Pooling = Pooling.AUTO
    context_tokens: int = 0
    """Longest text; 0: what the model was trained for, DEFAULT_CONTEXT_TOKENS at most."""
    places: int = 4
    """Requests that are let in at once; their texts share calls."""
    threads: int = field(default_factory=default_threads)
    batch_tokens: int = 512
    """Tokens of one native call, unless a single text is longer."""
    gpu_layers: int = 0
    waiting: int = 64
    """Requests inside the engine, at most."""

    def __post_init__(self) -> None:
        sizes = (self.places, self.threads, self.batch_tokens, self.waiting)
        if min(sizes) < 1 or self.context_tokens < 0:
            raise ValueError("places, threads, sizes and bounds of an engine are at least 1")

    def context_of(self, trained_tokens: int) -> int:
        """The longest text of a model that was trained for `trained_tokens`; 0: it does not say."""
        return self.context_tokens or min(
            trained_tokens or DEFAULT_CONTEXT_TOKENS, DEFAULT_CONTEXT_TOKENS
        )


@dataclass(frozen=True, slots=True)
class VectorFacts:
    """What is known of a loaded model."""

    context_tokens: int
    places: int
    dimensions: int
    pooling: str
    description: str
    weights_mib: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """float32 [texts, dimensions], each row of unit length."""

    vectors: "NDArray[np.float32]"
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Ranked:
    """(index of a document, its relevance), best first."""

    results: Sequence[tuple[int, float]]
    prompt_tokens: int


class VectorEngine(Protocol):
    """A model that turns texts into vectors or scores. All but `load` is for the event loop."""

    @property
    def facts(self) -> VectorFacts:
        """Known after `load`."""

    def load(self, progress: Callable[[float], None]) -> None:
        """As `services.llm.engine.Engine.load`."""

    @property
    def healthy(self) -> bool:
        """False once its thread has failed: nothing will run any more, so end the process."""

    async def embed(self, texts: Sequence[Text], dimensions: int) -> Embedded:
        """One vector a text, in order; `dimensions` 0: all. Raises Fault.

        When the task is cancelled it is over within one native call.
        """

    async def rerank(self, query: str, documents: Sequence[str], top_n: int) -> Ranked:
        """Score `documents`; `top_n` 0: all. Raises Fault; cancelled as `embed`."""

    def count_tokens(self, text: str) -> int:
        """The length of `text` as `embed` would see it. Raises Fault CONTEXT_LENGTH_EXCEEDED."""

    def close(self) -> None:
        """End all requests and free the model."""


_DOING = {
    "language": "write text",
    VectorKind.EMBEDDING: "embed texts",
    VectorKind.RERANKER: "rerank documents",
}


def wrong_kind(kind: str, asked: str) -> Fault:
    """The refusal of what models of kind `asked` do, by one of kind `kind`."""
    return Fault(
        Reason.NOT_IMPLEMENTED,
        f"Models of kind {kind} do not {_DOING[asked]}; ask a model of kind {asked}.",
        metadata={"param": "model"},
    )
