"""One step of the decode loop: fill the batch, decode it, and choose a token wherever a row wants
one. For the thread that decodes.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from chassis.errors import Fault
from services.llm.job import Job
from services.llm.kv_cache import KvCache
from services.llm.llama_api import Vocabulary
from services.llm.llama_context import Context
from services.llm.values import Chunk


class Part(NamedTuple):
    """What a step does for one job: its next `tokens`, the last `outputs` of them with logits."""

    job: Job
    tokens: int
    outputs: int


@dataclass(slots=True)
class Outcome:
    """What a step has made of one job."""

    job: Job
    chunks: list[Chunk] = field(default_factory=list)
    fault: Fault | None = None
    """It cannot go on."""

    @property
    def over(self) -> bool:
        """Nothing comes after this step."""
        ended = bool(self.chunks) and self.chunks[-1].finish is not None
        return ended or self.fault is not None


class Step:
    """Performs steps, and counts what they cost."""

    def __init__(self, context: Context, vocabulary: Vocabulary, cache: KvCache) -> None:
        self._context, self._vocabulary, self._cache = context, vocabulary, cache
        self.last_s = 0.0
        """Time inside the native decode, of the last step."""
        self.decode_s = 0.0
        """The same, of all steps."""
        self.steps = 0

    def perform(self, plan: list[Part]) -> list[Outcome]:
        """Raises what `Context.decode` raises; nothing has changed then."""
        rows = self._fill(plan)
        began_s = time.perf_counter()
        self._context.decode()
        self.last_s = time.perf_counter() - began_s
        self.decode_s += self.last_s
        self.steps += 1
        return [self._outcome(part, row) for part, row in zip(plan, rows, strict=True)]

    def _fill(self, plan: list[Part]) -> list[int]:
        context, rows, now_s = self._context, [], time.perf_counter()
        context.clear_rows()
        for job, count, outputs in plan:
            answer = job.answer
            answer.start(now_s)
            at = answer.cached
            if count == 1 and outputs:
                rows.append(context.add_row(job.sequence, at, answer.tokens[at]))
            elif outputs > 1:
                tokens = [answer.tokens[at], *job.draft[: count - 1]]
                rows.append(context.add_rows(job.sequence, at, tokens, outputs))
            else:
                tokens = answer.tokens[at : at + count]
                rows.append(context.add_rows(job.sequence, at, tokens, outputs))
        return rows

    def _outcome(self, part: Part, row: int) -> Outcome:
        job, outcome = part.job, Outcome(part.job)
        if part.outputs > 1:
            self._verify(outcome, row, part.outputs)
            return outcome
        job.answer.cached += part.tokens
        self._cache.grown(job)
        if job.cancelled:
            return outcome
        if not part.outputs:
            if job.chooser is None:  # else it was parked, and has told all this before
                outcome.chunks.append(job.answer.progress())
            return outcome
        self._take(outcome, row)
        if job.governor is not None:
            job.governor.judge(0, 0)
        return outcome

    def _verify(self, outcome: Outcome, row: int, outputs: int) -> None:
        """Choose at each row in turn, for as long as the choices are the guesses."""
        job, answer = outcome.job, outcome.job.answer
        accepted = 0
        answer.drafted_tokens += outputs - 1
        for at in range(outputs):
            answer.cached += 1
            if job.cancelled:
                break
            size = len(answer.tokens)
            self._take(outcome, row + at)
            if len(answer.tokens) == size or outcome.over:
                break
            if at == outputs - 1 or answer.tokens[-1] != job.draft[at]:
                break
            # Told at once: the next choice may be the last, and the answer's end tells them.
            accepted += 1
            answer.accepted_tokens += 1
            answer.saved_calls += 1
        if job.governor is not None:
            job.governor.judge(outputs - 1, accepted)
        self._cache.cut_back(job)
        self._cache.grown(job)

    def _take(self, outcome: Outcome, row: int) -> None:
        try:
            outcome.chunks += self._choose(outcome.job, row)
        except Fault as fault:  # its form cannot be followed; that is nobody else's matter
            outcome.fault = fault

    def _choose(self, job: Job, row: int) -> list[Chunk]:
        """Choose the next token; what to send, if anything."""
        answer = job.answer
        chooser = job.chooser
        if chooser is None:
            chooser = job.chooser = job.make_chooser()
        token, logprob, probability = chooser.choose(self._context, row, thinking=answer.thinking)
        now_s = time.perf_counter()
        if probability < answer.params.min_probability:
            return [answer.too_unlikely(now_s)]
        data, is_end = self._vocabulary.piece(token)
        chunk = answer.take(token, data, is_end, now_s, logprob)
        sent = [] if chunk is None else [chunk]
        form = chooser.form
        if form is not None and form.over and not (sent and sent[-1].finish):
            sent.append(answer.end())
        return sent
