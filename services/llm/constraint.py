"""The state of one answer that must have a form: which tokens may come next.

For the one thread that decodes. Asking about one token costs a microsecond or two and changes
nothing, so a sampler need not know: it chooses freely, and only where its choice is refused are
the logits masked and a second choice made.
"""

from typing import Protocol

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from chassis.errors import Fault, Reason


class Ends(Protocol):
    """The tokens that end an answer."""

    def __contains__(self, token: object, /) -> bool: ...


class Constraint:
    """What was accepted so far, and what may follow. A token that ends the answer is accepted once,
    where the form is complete.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        ends: Ends,
        vocabulary_tokens: int,
        *,
        param: str,
        ended: int = 0,
    ) -> None:
        self._matcher, self._ends, self._size = matcher, ends, vocabulary_tokens
        self._param, self._ended = param, ended

    @property
    def over(self) -> bool:
        """Nothing may follow: the answer is complete, with or without a token that ends it."""
        return self._ended > 0 or self._matcher.is_stopped()

    @property
    def may_end(self) -> bool:
        """What is there has the form already."""
        return self._ended > 0 or self._matcher.is_accepting()

    def allows(self, token: int) -> bool:
        """Whether the token may come next. Raises Fault INVALID_REQUEST as `forbid` does."""
        if token in self._ends:
            return self.may_end and self._ended == 0
        if self.over or not 0 <= token < self._size:
            return False
        allowed = self._matcher.validate_tokens([token]) == 1
        self._check()
        return allowed

    def accept(self, token: int) -> None:
        """Go on with a token that `allows` allowed. Raises Fault INVALID_REQUEST for another."""
        if not self.allows(token):
            raise self._fault("The answer left its form")
        if token in self._ends:
            self._ended += 1
            return
        self._matcher.consume_token(token)
        self._check()

    def mask(self) -> NDArray[np.bool_]:
        """What may come next, by token. Raises Fault INVALID_REQUEST as `forbid` does."""
        if self._ended:
            return np.zeros(self._size, np.bool_)
        bits = np.zeros(-(-self._size // 32), np.uint32)
        try:
            self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        except ValueError:
            self._check()
            raise
        self._check()
        allowed = np.unpackbits(bits.view(np.uint8), count=self._size, bitorder="little")
        return allowed.view(np.bool_)

    def forbid(self, logits: NDArray[np.float32]) -> None:
        """Set the logits of all tokens that may not come next to minus infinity, in place.

        Raises Fault INVALID_REQUEST where the grammar is too complex to say what may, or where
        nothing of the vocabulary fits.
        """
        allowed = self.mask()
        logits[: self._size][~allowed] = -np.inf
        logits[self._size :] = -np.inf

    def rollback(self, count: int) -> None:
        """Forget the last `count` accepted tokens."""
        ends = min(self._ended, count)
        self._ended -= ends
        if count > ends:
            self._matcher.rollback(count - ends)
            self._check()

    def copy(self) -> "Constraint":
        """Another answer that has come this far."""
        return Constraint(
            self._matcher.deep_copy(), self._ends, self._size, param=self._param, ended=self._ended
        )

    def _check(self) -> None:
        if not self._matcher.is_error():
            return
        if "NoExtension" in self._matcher.get_error():
            raise self._fault("No token of this model can go on with the answer's form")
        raise self._fault("The answer's form became too complex to follow")

    def _fault(self, what: str) -> Fault:
        message = f"{what} (`{self._param}`); simplify it."
        return Fault(Reason.INVALID_REQUEST, message, metadata={"param": self._param})
