"""Guesses of a draft model: a second, smaller model of the same vocabulary, in the same process.

It has a context of its own, with a sequence for each job that runs, and guesses for all of them in
one batch a token (speculative decoding, Leviathan 2023, with greedy guesses): the model itself
chooses every token as it would without, so a guess changes no answer. What it reads when is
`core/trailing.py`. All of it is for the thread that decodes.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chassis import log
from chassis.errors import Fault, Reason
from services.llm.core.trailing import LET_GO, Lack, Trail, plan_reading
from services.llm.engine import EngineSpec
from services.llm.job import Job
from services.llm.llama_api import Model
from services.llm.llama_context import Context, ContextSize, KvCacheFull

LEAST_PROBABILITY = 0.4
"""A guess that the draft model itself holds for less likely is not worth a row of the large one."""


class _Lead(NamedTuple):
    """A job whose text has been read to its end, and the row that says what follows."""

    job: Job
    trail: Trail
    row: int
    most: int


class DraftModel:
    """Guesses for up to `running` jobs, whose texts have `cells` tokens together."""

    def __init__(self, spec: EngineSpec, target: Model, cells: int, running: int) -> None:
        """Raises Fault MODEL_FAILED, also for a file that cannot guess for `target`."""
        path = spec.draft_path
        if path is None:
            raise Fault(Reason.MODEL_FAILED, "There is no draft model; set its draft_path.")
        model = Model(str(path), gpu_layers=spec.draft_gpu_layers)
        _check(model, path, target, spec.path)
        self._vocabulary = model.vocabulary
        self._chunk_tokens, self._cells = spec.prefill_chunk_tokens, cells
        self._most_tokens = model.trained_context_tokens or cells
        self._context = Context(
            model,
            ContextSize(
                cells=cells,
                sequences=running,
                outputs=running,
                batch_tokens=spec.batch_tokens,
                ubatch_tokens=spec.ubatch_tokens,
                threads=spec.threads,
                kv_type=spec.kv_type,
                flash_attention=spec.flash_attention,
            ),
        )
        self._free = list(range(running))
        self._trails: dict[Job, Trail] = {}
        self._broken = False
        self._context.warm_up(0)
        log.get().info("draft model loaded", file=path.name, description=model.description)

    @property
    def held_tokens(self) -> int:
        """Cells in use."""
        return sum(trail.held_tokens for trail in self._trails.values())

    def guess(self, jobs: Sequence[Job]) -> None:
        """Set the `draft` of each of these jobs, which are all that run."""
        for job in jobs:
            job.draft = []
        for gone in self._trails.keys() - set(jobs):
            self._let_go(gone)
        if self._broken:
            return
        try:
            leads = self._read({job: None for job in jobs if self._follows(job)})
            while leads:
                leads = self._go_on(leads)
        except (Fault, KvCacheFull) as error:  # guessing is over; answering is not
            log.get().error("draft model failed", why=str(error))
            self._broken = True

    def close(self) -> None:
        """Free its cache."""
        self._context.close()

    def _follows(self, job: Job) -> bool:
        """It is guessed for now, or will be when its prompt has been read."""
        answer, governor = job.answer, job.governor
        if governor is None or not governor.allowed() or answer.left_tokens < 2:
            return False
        return len(answer.tokens) + job.most_guesses <= self._most_tokens

    def _let_go(self, job: Job) -> None:
        if (trail := self._trails.pop(job, None)) is not None:
            self._context.cut(trail.sequence, 0)
            self._free.append(trail.sequence)

    def _read(self, jobs: dict[Job, None]) -> list[_Lead]:
        """Read what is lacking, or part of it, in that order; who is ready to be guessed for."""
        resting = sum(t.held_tokens for job, t in self._trails.items() if job not in jobs)
        plan = plan_reading(
            [self._lack(job) for job in jobs],
            batch_tokens=self._context.batch_tokens,
            chunk_tokens=self._chunk_tokens,
            cells=self._cells - resting,
        )
        self._context.clear_rows()
        leads = []
        for job, count in zip(jobs, plan, strict=True):
            if count == LET_GO:
                self._let_go(job)
            elif count and (lead := self._add(job, count)) is not None:
                leads.append(lead)
        if self._context.rows:
            self._context.decode()
        return leads

    def _lack(self, job: Job) -> Lack:
        tokens, guesses = job.answer.tokens, job.most_guesses
        trail = self._trails.get(job)
        if trail is None:
            trail = self._trails[job] = Trail(self._free.pop())
        elif trail.agree(tokens):
            self._context.cut(trail.sequence, trail.cached)
        # Before its time comes, all but the last token is read: that one says what follows.
        wanted = len(tokens) if guesses else len(tokens) - 1
        return Lack(trail.cached, wanted - trail.cached, guesses)

    def _add(self, job: Job, count: int) -> _Lead | None:
        tokens, trail, most = job.answer.tokens, self._trails[job], job.most_guesses
        end = trail.cached + count
        ready = most > 0 and end == len(tokens)
        row = self._context.add_rows(
            trail.sequence, trail.cached, tokens[trail.cached : end], int(ready)
        )
        trail.cached = end
        return _Lead(job, trail, row, most) if ready else None

    def _go_on(self, leads: list[_Lead]) -> list[_Lead]:
        """One more guess for each, as long as it is a good one; those that want another."""
        sure = [lead for lead in leads if self._guessed(lead)]
        self._context.clear_rows()
        wanting = []
        for job, trail, _, most in sure:
            if len(job.draft) < most:
                token = job.draft[-1]
                row = self._context.add_row(trail.sequence, trail.held_tokens, token)
                trail.ahead.append(token)
                wanting.append(_Lead(job, trail, row, most))
        if wanting:
            self._context.decode()
        return wanting

    def _guessed(self, lead: _Lead) -> bool:
        token, probability = best(self._context.logits(lead.row))
        if probability < LEAST_PROBABILITY or self._vocabulary.piece(token)[1]:
            return False  # the end of an answer saves no step
        lead.job.draft.append(token)
        return True


def best(logits: NDArray[np.float32]) -> tuple[int, float]:
    """The likeliest token, and its probability."""
    token = int(logits.argmax())
    return token, float(1 / np.exp(logits - logits[token]).sum())


def mismatch(theirs: Sequence[bytes], ours: Sequence[bytes]) -> str:
    """Where two vocabularies differ, in words; empty: nowhere."""
    if len(theirs) != len(ours):
        return f"it has {len(theirs)} tokens instead of {len(ours)}"
    for token, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        if one != other:
            said, meant = (text.decode("utf-8", "replace")[:40] for text in (one, other))
            return f"its token {token} is '{said}' instead of '{meant}'"
    return ""


def _check(draft: Model, draft_path: Path, target: Model, path: Path) -> None:
    why = mismatch(draft.vocabulary.texts(), target.vocabulary.texts())
    if not why and not draft.writes_text:
        why = "it does not write text"
    if not why and not (draft.shares_prefixes and target.shares_prefixes):
        whose = "its state" if target.shares_prefixes else f"the state of {path.name}"
        why = f"{whose} cannot be taken back when a guess is wrong"
    if why:
        raise Fault(
            Reason.MODEL_FAILED,
            f"The draft model {draft_path.name} cannot guess for {path.name}: {why}; choose a "
            "smaller model of the same family, or set speculation to off.",
        )
