"""The engine over llama-cpp-python: a file, its vocabulary and template, and the decode loop.

gRPC, permits and processes stay out.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from chassis.errors import Fault, Reason
from services.llm import gguf_meta
from services.llm.answer import Answer, Times
from services.llm.choosing import Chooser
from services.llm.constraint import Constraint
from services.llm.core.drafting import Governor, Lookup, Tally
from services.llm.draft_model import DraftModel
from services.llm.engine import EngineFacts, EngineSpec, Holdings, Occupancy
from services.llm.gguf_meta import GgufMeta
from services.llm.grammars import Grammars
from services.llm.job import Job, guess_each
from services.llm.kv_cache import CacheRoom, KvCache
from services.llm.limits import check_params
from services.llm.llama_api import Model, Vocabulary
from services.llm.llama_context import Context, ContextSize
from services.llm.llama_sampler import Candidates, Sampler
from services.llm.loop import DecodeLoop, LoopBounds
from services.llm.prompts import Prepared, Prompts, chars_of
from services.llm.step import Step
from services.llm.stream import AnswerStream
from services.llm.tokenizer import Tokenizer
from services.llm.values import Chunk, Conversation, GenerateParams, Prompt

T = TypeVar("T")

CLOSE_TIMEOUT_S = 10.0
CELLS_STEP = 256
"""The native cache is padded to this."""
MOST_SEQUENCES = 256
"""As many as the native library tells apart."""
MORE_RUNNING = 15
"""Further choices of requests run beside the places, as far as the KV cache has room."""
IDLE_SEQUENCES = 16
"""For prefixes that nobody runs on."""
INLINE_CHARS = 16_384
"""Prompts up to this length are tokenised in the event loop (a few ms), longer ones on a thread."""


class LlamaEngine:
    """`services.llm.engine.Engine`, over one GGUF file."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._context: Context | None = None
        self._tokenizer: Tokenizer | None = None
        self._prompts: Prompts | None = None
        self._loop: DecodeLoop | None = None
        self._draft: DraftModel | None = None
        self._candidates: Candidates | None = None
        self._grammars: Grammars | None = None
        self._facts: EngineFacts | None = None
        self._guesses, self._tally = False, Tally()

    @property
    def facts(self) -> EngineFacts:
        """Known after `load`."""
        return _loaded(self._facts)

    @property
    def step_costs(self) -> Step:
        """What its steps have cost so far."""
        return _loaded(self._loop).step

    @property
    def tokenizer(self) -> Tokenizer:
        """Known after `load`."""
        return _loaded(self._tokenizer)

    def load(self, progress: Callable[[float], None]) -> None:
        """See the protocol."""
        spec, meta = self._spec, gguf_meta.read(self._spec.path)
        model = Model(str(spec.path), gpu_layers=spec.gpu_layers, progress=progress)
        try:
            context_tokens = _context_tokens(spec, model, meta)
            self._tokenizer = Tokenizer(model)
            self._prompts = self._tokenizer.prompts
            room = _room(spec, model, context_tokens)
            # A wrong guess is cut off again, which a recurrent state cannot be.
            self._guesses = spec.speculation != "off" and room.shares_prefixes
            self._context = Context(model, _context_size(spec, room))
            self._context.warm_up(0)
            if spec.speculation == "draft":
                self._draft = DraftModel(spec, model, room.cells, room.running)
        except Fault:
            self.close()
            raise
        self._facts = EngineFacts(
            context_tokens=context_tokens,
            trained_context_tokens=model.trained_context_tokens,
            places=spec.places,
            vocabulary_tokens=model.vocabulary.size,
            description=model.description,
            weights_mib=-(-model.weights_bytes // (1 << 20)),
            kv_cache_mib=-(-room.cells * meta.kv_bytes_per_token() // (1 << 20)),
            template_note=self._prompts.template.note,
            thinks=self._prompts.knows_thinking,
            infills=model.vocabulary.infill_marks() is not None,
            translates=self._prompts.knows_translation,
        )
        self._start_loop(model.vocabulary, self._context, room)

    def _start_loop(self, vocabulary: Vocabulary, context: Context, room: CacheRoom) -> None:
        spec = self._spec
        self._candidates = Candidates(vocabulary.size)
        self._grammars = Grammars(vocabulary)
        bounds = LoopBounds(
            places=spec.places,
            running=room.running,
            chunk_tokens=spec.prefill_chunk_tokens,
            waiting=spec.waiting,
            buffer_tokens=spec.buffer_tokens,
        )
        guess = self._draft.guess if self._draft is not None else guess_each
        self._loop = DecodeLoop(context, vocabulary, KvCache(context, room), bounds, guess)
        self._loop.start()

    @property
    def healthy(self) -> bool:
        """See the protocol."""
        return self._loop is not None and self._loop.healthy

    @property
    def tally(self) -> Tally:
        """What guessing ahead has come to."""
        return self._tally

    def occupancy(self) -> Occupancy:
        """See the protocol."""
        return _loaded(self._loop).occupancy()

    def holdings(self) -> Holdings:
        """See the protocol."""
        return _loaded(self._loop).holdings()

    def count_tokens(self, prompt: Prompt) -> int:
        """See the protocol."""
        prompts = _loaded(self._prompts)
        prompts.check_fits(prompt, self.facts.context_tokens)
        return len(prompts.tokens(prompt))

    async def generate(self, prompt: Prompt, params: GenerateParams) -> AsyncGenerator[Chunk, None]:
        """See the protocol."""
        arrived_s, loop = time.perf_counter(), _loaded(self._loop)
        check_params(params, self.facts.vocabulary_tokens)
        prepared = await self._prepared(_thoughtless(prompt) if params.output else prompt)
        form = await self._form(prepared, params)
        stream = AnswerStream(params.choices)
        jobs = self._jobs(prepared, params, form, stream, arrived_s)
        loop.submit(jobs[0])
        left = len(jobs)
        try:
            while left > 0:
                for chunk in await stream.next():
                    left -= chunk.finish is not None
                    yield chunk
        finally:
            await _left([job for job in jobs if loop.cancel(job)], loop)

    def _jobs(
        self,
        prepared: Prepared,
        params: GenerateParams,
        form: Constraint | None,
        stream: AnswerStream,
        arrived_s: float,
    ) -> list[Job]:
        """One a choice; the first brings the others along."""
        tokenize_s = time.perf_counter() - arrived_s
        limit_tokens = self._limit(len(prepared.tokens), params)
        visible = _loaded(self._prompts).visible(prepared.form)
        jobs = []
        for choice in range(params.choices):
            answer = Answer(
                list(prepared.tokens),
                params,
                form=prepared.form,
                visible=visible,
                limit_tokens=limit_tokens,
                times=Times(arrived_s, tokenize_s),
                choice=choice,
                speculates=self._guesses,
            )
            choosing = partial(
                self._chooser, answer, form and form.copy(), form_thinks=prepared.output is not None
            )
            jobs.append(self._job(answer, choosing, stream))
        jobs[0].followers = jobs[1:]
        return jobs

    def _job(self, answer: Answer, choosing: Callable[[], Chooser], stream: AnswerStream) -> Job:
        scope = answer.params.cache_scope if self._spec.cache_scope == "key" else ""
        job = Job(answer, stream, choosing, scope)
        if answer.speculates:
            job.governor = Governor(self._spec.draft_tokens, self._tally)
        if self._spec.speculation == "lookup":
            job.drafter = Lookup()
        return job

    def _chooser(self, answer: Answer, form: Constraint | None, *, form_thinks: bool) -> Chooser:
        vocabulary = _loaded(self._prompts).vocabulary
        sampler = Sampler(
            answer.params.sampling, vocabulary.size, answer.tokens, shift=answer.choice
        )
        return Chooser(
            answer.params,
            vocabulary,
            sampler,
            _loaded(self._candidates),
            form,
            form_thinks=form_thinks,
        )

    async def _prepared(self, prompt: Prompt) -> Prepared:
        prompts = _loaded(self._prompts)
        prompts.check_fits(prompt, self.facts.context_tokens)
        if chars_of(prompt) <= INLINE_CHARS:
            return prompts.prepare(prompt)
        return await _on_thread(partial(prompts.prepare, prompt))

    async def _form(self, prepared: Prepared, params: GenerateParams) -> Constraint | None:
        """What the answer must look like; a call that is demanded goes before a form."""
        output, param = prepared.output or params.output, "response_format"
        if output is None:
            return None
        if prepared.output is not None:
            param = "tools"
        return await _on_thread(partial(_loaded(self._grammars).compile, output, param))

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
        loop, context, draft = self._loop, self._context, self._draft
        self._tokenizer = self._prompts = self._loop = self._context = self._draft = None
        # A thread stuck in the native library still uses the context: to free it would crash.
        if context is not None and (loop is None or loop.close(CLOSE_TIMEOUT_S)):
            context.close()
            if draft is not None:
                draft.close()


def _room(spec: EngineSpec, model: Model, context_tokens: int) -> CacheRoom:
    cells = spec.cache_tokens or context_tokens * spec.places
    if cells < context_tokens:
        raise Fault(
            Reason.MODEL_FAILED,
            f"A KV cache of {cells} tokens does not hold one context of {context_tokens}; "
            "raise cache_tokens or lower context_tokens.",
        )
    shares = model.shares_prefixes
    running = min(spec.places + (MORE_RUNNING if shares else 0), spec.batch_tokens, MOST_SEQUENCES)
    # What slides out of a window is written over where it lies.
    orderly = shares and not model.window_tokens and running < MOST_SEQUENCES
    ordered = spec.ordered_cells and orderly
    idle = min(IDLE_SEQUENCES, MOST_SEQUENCES - running - ordered) if shares else 0
    return CacheRoom(
        cells=-(-cells // CELLS_STEP) * CELLS_STEP,
        sequences=running + idle,
        idle_sequences=idle,
        idle_cells=spec.idle_cache_tokens,
        parked_bytes=spec.prefix_cache_mib << 20,
        shares_prefixes=shares,
        ordered=ordered,
    )


def _context_size(spec: EngineSpec, room: CacheRoom) -> ContextSize:
    guesses = spec.draft_tokens if spec.speculation != "off" else 0
    outputs, sequences = room.running * (1 + guesses), room.sequences + room.ordered
    return ContextSize(
        cells=room.cells,
        sequences=sequences,
        # Fewer than there are sequences, and the native library ends the process.
        outputs=max(sequences, min(outputs, spec.batch_tokens)),
        batch_tokens=spec.batch_tokens,
        ubatch_tokens=spec.ubatch_tokens,
        threads=spec.threads,
        kv_type=spec.kv_type,
        flash_attention=spec.flash_attention,
    )


def _context_tokens(spec: EngineSpec, model: Model, meta: GgufMeta) -> int:
    if not model.writes_text or meta.is_encoder:
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {spec.path.name} does not write text; "
            "set its `kind` to embedding or reranker.",
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


def _thoughtless(prompt: Prompt) -> Prompt:
    """A form begins with the first token: who must keep to one does not think unless he is told."""
    if isinstance(prompt, Conversation) and prompt.thinking is None:
        return replace(prompt, thinking=False)
    return prompt


async def _on_thread(work: Callable[[], T]) -> T:
    """A thread cannot be cancelled: the request is not over before its work is."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _left(jobs: list[Job], loop: DecodeLoop) -> None:
    """Wait until cancelled jobs hold no place: whoever hears that it is over relies on that."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            for job in jobs:
                await job.stream.over[job.answer.choice].wait()
    except TimeoutError:
        loop.give_up()
        raise Fault(
            Reason.ENGINE_CRASHED, "The engine is stuck and will be restarted; try again shortly."
        ) from None


def _loaded(part: T | None) -> T:
    if part is None:
        raise Fault(Reason.SERVICE_UNAVAILABLE, "The engine is not loaded; load it first.")
    return part
