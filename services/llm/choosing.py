"""How the next token of one answer is chosen: sampled, held to a form, and told how likely it was.

A form is checked after the choice, not before: to mask a whole vocabulary at every token costs many
times what it costs to check one. Only when the choice does not fit, the tokens that do not fit are
forbidden, and it is chosen again.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from services.llm.llama_api import Vocabulary
from services.llm.llama_context import Context
from services.llm.llama_sampler import Candidates, Sampler
from services.llm.values import Candidate, GenerateParams, TokenLogprob

Logits = NDArray[np.float32]


class Form(Protocol):
    """What an answer must look like, as far as it has come."""

    @property
    def over(self) -> bool:
        """It is complete: nothing may follow."""

    def allows(self, token: int) -> bool:
        """The token may come next."""

    def accept(self, token: int) -> None:
        """The token, which is allowed, has come."""

    def forbid(self, logits: Logits) -> None:
        """Set the logits of all tokens that may not come next to minus infinity."""

    def copy(self) -> "Form":
        """As it stands, for another answer."""


class Choice(NamedTuple):
    """A token; `logprob` where the request wants it, `probability` 1 where nobody asked."""

    token: int
    logprob: TokenLogprob | None = None
    probability: float = 1.0


class Chooser:
    """Of one answer."""

    def __init__(
        self,
        params: GenerateParams,
        vocabulary: Vocabulary,
        sampler: Sampler,
        candidates: Candidates,
        form: Form | None,
        *,
        form_thinks: bool = False,
    ) -> None:
        """`form_thinks`: the form knows of thoughts; else they are held to none."""
        self._params, self._vocabulary = params, vocabulary
        self._sampler, self._candidates = sampler, candidates
        self.form, self._form_thinks = form, form_thinks
        self._told = params.logprobs or params.min_probability > 0

    def choose(self, context: Context, row: int, *, thinking: bool) -> Choice:
        """The token after `row`."""
        form = None if thinking and not self._form_thinks else self.form
        if form is None and not self._told and not self._sampler.looks_at_few:
            return Choice(context.sample(self._sampler, row))
        logits = context.logits(row)
        told = logits.copy() if self._told else None
        token = self._fitting(form, logits) if form is not None else self._free(logits)
        if told is None:
            return Choice(token)
        logprobs = told - _log_sum(told)
        probability = float(np.exp(logprobs[token]))
        if not self._params.logprobs:
            return Choice(token, None, probability)
        return Choice(token, self._told_of(token, logprobs), probability)

    def close(self) -> None:
        """Free the sampler."""
        self._sampler.close()

    def _free(self, logits: Logits) -> int:
        token = self._sampler.choose(logits, self._candidates)
        self._sampler.accept(token)
        return token

    def _fitting(self, form: Form, logits: Logits) -> int:
        token = self._sampler.choose(logits, self._candidates)
        if not form.allows(token):
            form.forbid(logits)
            token = self._sampler.choose(logits, self._candidates)
        self._sampler.accept(token)
        form.accept(token)
        return token

    def _told_of(self, token: int, logprobs: Logits) -> TokenLogprob:
        most = min(self._params.top_logprobs, len(logprobs))
        best = np.argpartition(logprobs, -most)[-most:] if most else np.empty(0, np.intp)
        best = best[np.argsort(-logprobs[best], kind="stable")]
        return TokenLogprob(
            self._candidate(token, logprobs),
            tuple(self._candidate(int(other), logprobs) for other in best),
        )

    def _candidate(self, token: int, logprobs: Logits) -> Candidate:
        return Candidate(token, self._vocabulary.piece(token)[0], float(logprobs[token]))


def _log_sum(logits: Logits) -> np.float32:
    """log Σ exp, shifted by the largest so that nothing overflows."""
    largest = logits.max()
    return np.float32(largest + np.log(np.exp(logits - largest).sum()))
