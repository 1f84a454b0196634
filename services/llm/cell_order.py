"""What becomes of the cells that a sequence leaves: the others' stay in order.

The native cache puts a token into the first free cell, and attention adds up a sequence's cells as
they lie. If cells came free in front of a running sequence, its next tokens would lie before its
earlier ones, and their terms be added in another order than if it ran alone: that changes the last
bit of a sum, which quantised products make tenths of a logit of. So cells that are left stay taken,
as tombstones, while there are others. When they are many, or their room is wanted, all that is in
the cache is put down anew, as it lies but without gaps. That goes through host memory; where it is
too much, the tombstones are freed all the same, and order is lost.

All of it is for the thread that decodes.
"""

from services.llm.core.cells import Cells
from services.llm.llama_context import Context

_LEAST_TOMBSTONES = 256
"""Fewer are not worth a compaction: attention passes over them in a hundredth of a step."""
_TOMBSTONE_SHARE = 1 / 3
"""Of the cells in use: with more, attention loses more time to them than a compaction takes."""


class CellOrder:
    """Frees cells of `context`, and keeps `cells`, the count of those in use."""

    def __init__(self, context: Context, cells: Cells, *, grave: int, copy_bytes: int) -> None:
        """`grave` is a sequence of nobody's, for tombstones; -1: order is not kept. A compaction
        copies at most `copy_bytes`.
        """
        self._context, self._cells = context, cells
        self._grave, self._copy_bytes = grave, copy_bytes
        self.tombstones = 0
        """Cells that are taken for nobody."""
        self._in_use = False
        """The grave holds cells, which may be others' too."""

    def clear(self, sequence: int) -> None:
        """The sequence is over."""
        buried, used = self._bury(sequence, 0), self._cells.used
        self._context.cut(sequence, 0)
        self._cells.remove(sequence)
        if not len(self._cells):
            self._free_tombstones()
        elif buried:
            self._more_tombstones(used - self._cells.used)

    def cut(self, sequence: int, tokens: int) -> None:
        """Forget what is behind its first `tokens`, counted or not. The model must have no state
        that cannot be cut.
        """
        self._cells.set(sequence, self._context.held_tokens(sequence))
        buried, used = self._bury(sequence, tokens), self._cells.used
        self._context.cut(sequence, tokens)
        self._cells.set(sequence, tokens)
        if buried:
            self._more_tombstones(used - self._cells.used)

    def _bury(self, sequence: int, tokens: int) -> bool:
        """Have what is behind its first `tokens` stay taken; False: it need not."""
        if self._grave < 0 or not (len(self._cells) > 1 or self._in_use):
            return False
        self._context.copy(sequence, self._grave, tokens)
        self._in_use = True
        return True

    def _more_tombstones(self, count: int) -> None:
        self.tombstones += count
        if self.tombstones > max(_LEAST_TOMBSTONES, _TOMBSTONE_SHARE * self._cells.used):
            self.compact()

    def compact(self) -> bool:
        """Free the cells of all tombstones; False: there are none. Raises RuntimeError over a cache
        that has lost cells: nothing in it can be relied on then.
        """
        if not self._in_use:
            return False
        self._free_tombstones()
        context, shares = self._context, self._cells.shares()
        for share in shares:  # what several hold is copied once, with the one it is counted for
            context.drop(share.sequence, share.tokens)
        if sum(context.saved_bytes(share.sequence) for share in shares) <= self._copy_bytes:
            self._put_down_anew([share.sequence for share in shares])
        for share in shares:
            if share.tokens:
                context.copy(share.source, share.sequence, 0, share.tokens)
        return True

    def _put_down_anew(self, sequences: list[int]) -> None:
        states = [self._context.save(sequence) for sequence in sequences]
        for sequence in sequences:
            self._context.cut(sequence, 0)
        for sequence, state in zip(sequences, states, strict=True):
            if not self._context.restore(sequence, state):
                raise RuntimeError("the KV cache did not take back its own cells")

    def _free_tombstones(self) -> None:
        if self._in_use:
            self._context.cut(self._grave, 0)
        self.tombstones, self._in_use = 0, False
