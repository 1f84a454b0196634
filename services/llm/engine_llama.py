"""The engine over llama-cpp-python: a file, its vocabulary and template, and the decode loop.

`VocabularyOnly` counts tokens of a model that is not loaded. Both turn a prompt into tokens the
same way. gRPC, permits and processes stay out.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeVar

from chassis.errors import Fault, Reason, not_implemented
from services.llm import gguf_meta
from services.llm.answer import Answer
from services.llm.engine import EngineFacts, EngineSpec, Occupancy
from services.llm.limits import check_params
from services.llm.llama_api import Context, Model, Vocabulary
from services.llm.loop import DecodeLoop, Job
from services.llm.prompts import Prompts, chars_of
from services.llm.stream import AnswerStream
from services.llm.values import Chunk, Conversation, GenerateParams, Prompt

CLOSE_TIMEOUT_S = 10.0
INLINE_CHARS = 16_384
"""Prompts up to this length are tokenised in the event loop (a few ms), longer ones on a thread."""


class VocabularyOnly:
    """Counts tokens without weights; opening takes milliseconds. Raises Fault MODEL_FAILED."""

    def __init__(self, path: Path, context_tokens: int) -> None:
        gguf_meta.read(path)
        self._context_tokens = context_tokens
        self._prompts: Prompts | None = Prompts(Model(str(path), vocabulary_only=True))

    def count_tokens(self, prompt: Prompt) -> int:
        """As `Engine.count_tokens`."""
        prompts = _loaded(self._prompts)
        prompts.check_fits(prompt, self._context_tokens)
        return len(prompts.tokens(prompt))

    def close(self) -> None:
        """Free the vocabulary."""
        self._prompts = None


class LlamaEngine:
    """`services.llm.engine.Engine`, over one GGUF file."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._context: Context | None = None
        self._prompts: Prompts | None = None
        self._loop: DecodeLoop | None = None
        self._facts: EngineFacts | None = None

    @property
    def facts(self) -> EngineFacts:
        """Known after `load`."""
        return _loaded(self._facts)

    def load(self, progress: Callable[[float], None]) -> None:
        """See the protocol."""
        spec, meta = self._spec, gguf_meta.read(self._spec.path)
        model = Model(str(spec.path), gpu_layers=spec.gpu_layers, progress=progress)
        try:
            context_tokens = _context_tokens(spec, model)
            self._prompts = Prompts(model)
            self._context = Context(
                model,
                cells=context_tokens * spec.places,
                sequences=spec.places,
                batch_tokens=spec.batch_tokens,
                threads=spec.threads,
            )
            self._context.warm_up(0)
        except Fault:
            self.close()
            raise
        cells = -(-context_tokens * spec.places // 256) * 256
        self._facts = EngineFacts(
            context_tokens=context_tokens,
            trained_context_tokens=model.trained_context_tokens,
            places=spec.places,
            vocabulary_tokens=model.vocabulary.size,
            description=model.description,
            weights_mib=-(-model.weights_bytes // (1 << 20)),
            kv_cache_mib=-(-cells * meta.kv_bytes_per_token() // (1 << 20)),
            template_note=self._prompts.template.note,
        )
        self._start_loop(model.vocabulary, self._context)

    def _start_loop(self, vocabulary: Vocabulary, context: Context) -> None:
        spec = self._spec
        self._loop = DecodeLoop(
            context,
            vocabulary,
            places=spec.places,
            chunk_tokens=spec.prefill_chunk_tokens,
            waiting=spec.waiting,
            buffer_tokens=spec.buffer_tokens,
        )
        self._loop.start()

    @property
    def healthy(self) -> bool:
        """See the protocol."""
        return self._loop is not None and self._loop.healthy

    def occupancy(self) -> Occupancy:
        """See the protocol."""
        return _loaded(self._loop).occupancy()

    def count_tokens(self, prompt: Prompt) -> int:
        """See the protocol."""
        prompts = _loaded(self._prompts)
        prompts.check_fits(prompt, self.facts.context_tokens)
        return len(prompts.tokens(prompt))

    async def generate(self, prompt: Prompt, params: GenerateParams) -> AsyncGenerator[Chunk, None]:
        """See the protocol."""
        arrived_s, loop = time.perf_counter(), _loaded(self._loop)
        check_params(params, self.facts.vocabulary_tokens)
        _refuse_unbuilt(prompt, params)
        tokens = await self._tokens(prompt)
        answer = Answer(
            tokens,
            params,
            limit_tokens=self._limit(len(tokens), params),
            arrived_s=arrived_s,
            tokenize_s=time.perf_counter() - arrived_s,
        )
        job = Job(answer, AnswerStream())
        loop.submit(job)
        try:
            chunk = Chunk()
            while chunk.finish is None:
                chunk = await job.stream.next()
                yield chunk
        finally:
            if loop.cancel(job):
                await _left(job, loop)

    async def _tokens(self, prompt: Prompt) -> list[int]:
        prompts = _loaded(self._prompts)
        prompts.check_fits(prompt, self.facts.context_tokens)
        if chars_of(prompt) <= INLINE_CHARS:
            return prompts.tokens(prompt)
        work = asyncio.ensure_future(asyncio.to_thread(prompts.tokens, prompt))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: the request is not over before its work is.
            await asyncio.wait([work])
            raise

    def _limit(self, prompt_tokens: int, params: GenerateParams) -> int:
        context = self.facts.context_tokens
        if prompt_tokens == 0:
            raise Fault(Reason.INVALID_REQUEST, "The prompt is empty; say something.")
        left = context - prompt_tokens
        if left >= max(1, params.max_tokens):
            return params.max_tokens or left
        asked = f" and {params.max_tokens} for the answer" if params.max_tokens else ""
        raise Fault(
            Reason.CONTEXT_LENGTH_EXCEEDED,
            f"This model's context is {context} tokens, but the request wants {prompt_tokens} for "
            f"the prompt{asked or ' and at least 1 for the answer'}; shorten one of them.",
            metadata={"prompt_tokens": str(prompt_tokens), "context_tokens": str(context)},
        )

    def close(self) -> None:
        """See the protocol."""
        loop, context = self._loop, self._context
        self._prompts = self._loop = self._context = None
        # A thread stuck in the native library still uses the context: to free it would crash.
        if context is not None and (loop is None or loop.close(CLOSE_TIMEOUT_S)):
            context.close()


def _context_tokens(spec: EngineSpec, model: Model) -> int:
    if not model.writes_text:
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} does not write text; configure it for what it does.",
        )
    trained = model.trained_context_tokens
    wanted = spec.context_tokens or trained
    if not 0 < wanted <= (trained or wanted):
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} was trained for {trained} tokens of context; "
            f"set its context_tokens to 1 to {trained}, not {wanted}.",
        )
    return wanted


async def _left(job: Job, loop: DecodeLoop) -> None:
    """Wait until a cancelled job holds no place: whoever hears that it is over relies on that."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await job.stream.over.wait()
    except TimeoutError:
        loop.give_up()
        raise Fault(
            Reason.ENGINE_CRASHED, "The engine is stuck and will be restarted; try again shortly."
        ) from None


def _refuse_unbuilt(prompt: Prompt, params: GenerateParams) -> None:
    unbuilt = {
        "More than one answer a request (choices)": params.choices > 1,
        "Log-probabilities (logprobs)": params.logprobs,
        "Constrained output (output)": params.output is not None,
        "Ending after a number of sentences (max_sentences)": params.max_sentences > 0,
        "Ending at an unlikely token (min_probability)": params.min_probability > 0,
        "Calling tools": isinstance(prompt, Conversation) and bool(prompt.tools),
    }
    for what, asked in unbuilt.items():
        if asked:
            raise not_implemented(what)


T = TypeVar("T")


def _loaded(part: T | None) -> T:
    if part is None:
        raise Fault(Reason.SERVICE_UNAVAILABLE, "The engine is not loaded; load it first.")
    return part
