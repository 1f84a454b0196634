"""The engine of embedding models and rerankers, over one GGUF file.

It turns texts into tokens within bounds, has the loop compute, and makes vectors and scores of
what comes back. gRPC, permits and processes stay out.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import llama_cpp as native
import numpy as np

from chassis.errors import Fault, Reason
from services.llm import gguf_meta
from services.llm.llama_api import Model
from services.llm.llama_vectors import MOST_SEQUENCES, RANK, VectorContext
from services.llm.similarity import Floats, best, relevance, unit
from services.llm.tokenizer import Tokenizer
from services.llm.vector_loop import Job, VectorLoop
from services.llm.vectors import (
    MAX_TEXTS,
    Embedded,
    Pooling,
    Ranked,
    Text,
    VectorFacts,
    VectorKind,
    VectorSpec,
    wrong_kind,
)

CLOSE_TIMEOUT_S = 10.0
INLINE_CHARS = 16_384
"""Texts up to this length together are tokenised in the event loop, longer ones on a thread."""

_NATIVE = {
    Pooling.MEAN: native.LLAMA_POOLING_TYPE_MEAN,
    Pooling.CLS: native.LLAMA_POOLING_TYPE_CLS,
    Pooling.LAST: native.LLAMA_POOLING_TYPE_LAST,
}
_NAMES = {value: name.value for name, value in _NATIVE.items()} | {RANK: "rank"}


class LlamaVectors:
    """`services.llm.vectors.VectorEngine`."""

    def __init__(self, spec: VectorSpec) -> None:
        self._spec = spec
        self._context: VectorContext | None = None
        self._tokenizer: Tokenizer | None = None
        self._loop: VectorLoop | None = None
        self._facts: VectorFacts | None = None
        self._ranks = False

    @property
    def facts(self) -> VectorFacts:
        """Known after `load`."""
        return _loaded(self._facts)

    @property
    def tokenizer(self) -> Tokenizer:
        """Known after `load`."""
        return _loaded(self._tokenizer)

    def load(self, progress: Callable[[float], None]) -> None:
        """See the protocol."""
        spec, meta = self._spec, gguf_meta.read(self._spec.path)
        pooling = pooling_of(meta, spec)
        self._ranks = pooling == RANK
        model = Model(str(spec.path), gpu_layers=spec.gpu_layers, progress=progress)
        context_tokens = _context_tokens(spec, model)
        self._context = VectorContext(
            model,
            call_tokens=max(spec.batch_tokens, context_tokens),
            pooling=pooling,
            threads=spec.threads,
        )
        self._tokenizer = Tokenizer(model)
        self._facts = VectorFacts(
            context_tokens=context_tokens,
            places=spec.places,
            dimensions=self._context.width,
            pooling=_NAMES[pooling],
            description=model.description,
            weights_mib=-(-model.weights_bytes // (1 << 20)),
        )
        try:
            self._context.compute([[0]])  # weights are paged in before the first request
        except Fault:
            self.close()
            raise
        self._loop = VectorLoop(
            self._context,
            batch_tokens=spec.batch_tokens,
            most_texts=MOST_SEQUENCES,
            waiting=spec.waiting,
        )
        self._loop.start()

    @property
    def healthy(self) -> bool:
        """See the protocol."""
        return self._loop is not None and self._loop.healthy

    @property
    def inside(self) -> int:
        """Requests that wait or run."""
        return _loaded(self._loop).inside

    def count_tokens(self, text: str) -> int:
        """See the protocol."""
        return len(self._encoded(text, "prompt"))

    async def embed(self, texts: Sequence[Text], dimensions: int) -> Embedded:
        """See the protocol."""
        if self._spec.kind is not VectorKind.EMBEDDING:
            raise wrong_kind(self._spec.kind, VectorKind.EMBEDDING)
        _check_count(texts, "input")
        size = self.facts.dimensions
        if not 0 <= dimensions <= size:
            raise _refused(
                "dimensions", f"`dimensions` must be from 1 to {size}, the model's own length."
            )
        names = [f"input[{i}]" for i in range(len(texts))]
        tokens = await _tokenised(
            lambda: [self._encoded(*each) for each in zip(texts, names, strict=True)],
            sum(map(len, texts)),
        )
        rows = unit(await self._computed(tokens), dimensions)
        return Embedded(rows, sum(map(len, tokens)))

    async def rerank(self, query: str, documents: Sequence[str], top_n: int) -> Ranked:
        """See the protocol."""
        if self._spec.kind is not VectorKind.RERANKER:
            raise wrong_kind(self._spec.kind, VectorKind.RERANKER)
        _check_count(documents, "documents")
        chars = len(documents) * len(query) + sum(map(len, documents))
        tokens = await _tokenised(lambda: self._pairs(query, documents), chars)
        rows = await self._computed(tokens)
        scores = relevance(rows) if self._ranks else _cosines(rows)
        ranked = best(scores.tolist(), top_n)
        return Ranked(ranked, sum(map(len, tokens)))

    def _pairs(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """What is computed: a pair a document, or for cosines the query and then the documents."""
        names = [f"documents[{i}]" for i in range(len(documents))]
        if not self._ranks:
            texts = zip((query, *documents), ("query", *names), strict=True)
            return [self._encoded(*each) for each in texts]
        self._check_text(query, "query")
        pairs = []
        for document, name in zip(documents, names, strict=True):
            self._check_text(document, name)
            pairs.append(self._checked(self.tokenizer.encode_pair(query, document), name))
        return pairs

    def _encoded(self, text: Text, param: str) -> list[int]:
        if isinstance(text, str):
            self._check_text(text, param)
            return self._checked(self.tokenizer.encode(text, add_special=True, param=param), param)
        self.tokenizer.check_known(text, param)
        return self._checked(list(text), param)

    def _check_text(self, text: str, param: str) -> None:
        if not text:
            raise _refused(param, f"`{param}` is empty; send text.")
        self.tokenizer.check_bytes(text, self.facts.context_tokens, param)

    def _checked(self, tokens: list[int], param: str) -> list[int]:
        context = self.facts.context_tokens
        if not tokens:
            raise _refused(param, f"`{param}` has no tokens; send text.")
        if len(tokens) > context:
            raise Fault(
                Reason.CONTEXT_LENGTH_EXCEEDED,
                f"This model reads at most {context} tokens at a time, but `{param}` has "
                f"{len(tokens)}; shorten it.",
                metadata={
                    "param": param,
                    "prompt_tokens": str(len(tokens)),
                    "context_tokens": str(context),
                },
            )
        return tokens

    async def _computed(self, tokens: list[list[int]]) -> Floats:
        loop = _loaded(self._loop)
        job = Job(tokens, self.facts.dimensions)
        loop.submit(job)
        try:
            await job.over.wait()
        except asyncio.CancelledError:
            if loop.cancel(job):
                await _left(job, loop)
            raise
        if job.fault is not None:
            raise Fault(job.fault.reason, job.fault.message, retry_after_s=job.fault.retry_after_s)
        if not np.isfinite(job.rows).all():
            raise Fault(
                Reason.ENGINE_CRASHED, "The model answered with what is no number; try another."
            )
        return job.rows

    def close(self) -> None:
        """See the protocol."""
        loop, context = self._loop, self._context
        self._loop = self._context = self._tokenizer = None
        # A thread stuck in the native library still uses the context: to free it would crash.
        if context is not None and (loop is None or loop.close(CLOSE_TIMEOUT_S)):
            context.close()


def pooling_of(meta: gguf_meta.GgufMeta, spec: VectorSpec) -> int:
    """The native pooling type of `spec`. Raises Fault MODEL_FAILED where the file is of no use."""
    stated = meta.of_architecture("pooling_type", native.LLAMA_POOLING_TYPE_NONE)
    reranks = spec.kind is VectorKind.RERANKER
    if spec.pooling is not Pooling.AUTO:
        return int(_NATIVE[spec.pooling])
    if reranks and stated != RANK:
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} has no rank head; set its `pooling` to mean, cls or last "
            "to score by the cosine of vectors, or configure a reranker.",
        )
    if stated == RANK and not reranks:
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} is a reranker; set its `kind` to reranker.",
        )
    if stated in _NAMES:
        return stated
    # Without a word in the file: what encoders, and what decoders are trained to be read by.
    causal = meta.values.get(f"{meta.values.get('general.architecture')}.attention.causal", True)
    return int(_NATIVE[Pooling.LAST if causal else Pooling.MEAN])


def _context_tokens(spec: VectorSpec, model: Model) -> int:
    trained = model.trained_context_tokens
    wanted = spec.context_of(trained)
    if not 0 < wanted <= (trained or wanted):
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} was trained for {trained} tokens of context; "
            f"set its context_tokens to 1 to {trained}, not {wanted}.",
        )
    if native.llama_model_is_recurrent(model.handle) or native.llama_model_is_hybrid(model.handle):
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} reads by a recurrent state, which makes no vectors here; "
            "configure another.",
        )
    return wanted


def _cosines(rows: Floats) -> Floats:
    """Of the first row with each of the others."""
    units = unit(rows)
    cosines: Floats = units[1:] @ units[0]
    return cosines


def _check_count(texts: Sequence[object], param: str) -> None:
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise _refused(param, f"`{param}` must have from 1 to {MAX_TEXTS} items.")


def _refused(param: str, message: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, message, metadata={"param": param})


async def _tokenised(work: Callable[[], list[list[int]]], chars: int) -> list[list[int]]:
    if chars <= INLINE_CHARS:
        return work()
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # A thread cannot be cancelled: the request is not over before its work is.
        await asyncio.wait([running])
        raise


async def _left(job: Job, loop: VectorLoop) -> None:
    """Wait until a cancelled job is in no call: whoever hears that it is over relies on that."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await job.over.wait()
    except TimeoutError:
        loop.give_up()
        raise Fault(
            Reason.ENGINE_CRASHED, "The engine is stuck and will be restarted; try again shortly."
        ) from None


T = TypeVar("T")


def _loaded(part: T | None) -> T:
    if part is None:
        raise Fault(Reason.SERVICE_UNAVAILABLE, "The engine is not loaded; load it first.")
    return part
