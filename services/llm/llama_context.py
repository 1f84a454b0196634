"""The KV cache of a model and the batches it computes: a thin, typed layer over the native context.

Many native calls end the process when misused, so the rules that keep them safe live here:
positions and rows are written from one plan, only rows with logits are sampled, a context belongs
to the one thread that decodes with it. Which sequence is whose is decided elsewhere.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import llama_cpp as native
import numpy as np
from numpy.typing import NDArray

from chassis.errors import Fault, Reason
from services.llm.engine import KvType
from services.llm.llama_api import Model, complaint, kept
from services.llm.llama_sampler import Sampler

_logits_of = kept.llama_get_logits_ith
_logits_of.argtypes, _logits_of.restype = (ctypes.c_void_p, ctypes.c_int32), ctypes.c_void_p

_KV_TYPES = {"f16": native.GGML_TYPE_F16, "q8_0": native.GGML_TYPE_Q8_0}
_FLASH_ATTENTION = {
    None: native.LLAMA_FLASH_ATTN_TYPE_AUTO,
    False: native.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    True: native.LLAMA_FLASH_ATTN_TYPE_ENABLED,
}


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What a context is made with."""

    cells: int
    sequences: int
    outputs: int
    """Rows of one batch that may want logits."""
    batch_tokens: int
    ubatch_tokens: int
    threads: int
    kv_type: KvType = "f16"
    flash_attention: bool | None = None


class DecodeAborted(Exception):
    """The abort flag was set during a decode; the caller rolls its sequences back."""


class KvCacheFull(Exception):
    """No cells for the batch; nothing of it was computed."""


class Context:
    """A KV cache and its batch. All of it, but `abort`, is for the one thread that decodes.

    The cache is unified: one pool of cells for all sequences, each of which may take what the
    others leave. The batch lives in numpy arrays that the native side reads in place.
    """

    def __init__(
        self,
        model: Model,
        size: ContextSize,
    ) -> None:
        params = native.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = size.cells, size.sequences, True
        params.n_batch = size.batch_tokens
        params.n_ubatch = min(size.ubatch_tokens, size.batch_tokens)
        # Logits of a row or two a sequence, not of a whole batch.
        params.n_outputs_max = size.outputs
        params.n_threads = params.n_threads_batch = size.threads
        params.type_k = params.type_v = _KV_TYPES[size.kv_type]
        params.flash_attn_type = _FLASH_ATTENTION[size.flash_attention]
        params.no_perf = True
        params.swa_full = True  # keep what slid out of a window: a rolled-back step needs it
        self._model = model
        self._window_tokens = model.window_tokens
        self.vocabulary_tokens = model.vocabulary.size
        self._logits_kind = ctypes.c_float * self.vocabulary_tokens
        self.handle = native.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise Fault(
                Reason.MODEL_FAILED,
                f"No room for the model's context: {complaint(first=False) or 'out of memory'}.",
            )
        self._memory = native.llama_get_memory(self.handle)
        self.batch_tokens = int(native.llama_n_batch(self.handle))
        self._make_batch(self.batch_tokens)
        self._make_abort()

    def _make_batch(self, size: int) -> None:
        self._token, self._pos = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self._seq, self._logits = np.zeros(size, np.int32), np.zeros(size, np.int8)
        self._counts = np.ones(size, np.int32)
        self._seq_rows = self._seq.ctypes.data + 4 * np.arange(size, dtype=np.uintp)
        batch = self._batch = native.llama_batch()
        for name, array in (
            ("token", self._token),
            ("pos", self._pos),
            ("n_seq_id", self._counts),
            ("seq_id", self._seq_rows),
            ("logits", self._logits),
        ):
            kind = type(getattr(batch, name))
            setattr(batch, name, ctypes.cast(array.ctypes.data, kind))
        self.rows = 0

    def _make_abort(self) -> None:
        # The native side polls a callback hundreds of times in a decode. One in Python would cost
        # a hundred times the decode, so the callback is libc's strlen, and the flag its string:
        # "" (0, go on) or "x" (1, abort).
        self._flag = ctypes.create_string_buffer(2)
        strlen = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
        self._poll = native.ggml_abort_callback(strlen)
        native.llama_set_abort_callback(self.handle, self._poll, ctypes.addressof(self._flag))

    def warm_up(self, token: int) -> None:
        """Run one row: weights are paged in and buffers made before the first request needs them.
        Raises Fault ENGINE_CRASHED for a model that cannot compute.
        """
        self.clear_rows()
        self.add_row(0, 0, token)
        self.decode()
        self.cut(0, 0)

    def abort(self, wanted: bool) -> None:
        """Abort the decode that runs (CPU only; elsewhere it runs to its end). Any thread."""
        self._flag[0] = b"x" if wanted else b"\0"

    def clear_rows(self) -> None:
        """Begin a new batch."""
        self.rows = 0

    def add_row(self, sequence: int, position: int, token: int) -> int:
        """Append one token whose logits are wanted; its row."""
        row = self.rows
        self._token[row], self._pos[row], self._seq[row] = token, position, sequence
        self._logits[row] = 1
        self.rows = row + 1
        return row

    def add_rows(self, sequence: int, position: int, tokens: Sequence[int], outputs: int) -> int:
        """Append tokens of one sequence, the last `outputs` with logits; the first of those rows,
        or the last one where there are none.
        """
        begin, end = self.rows, self.rows + len(tokens)
        self._token[begin:end] = tokens
        self._pos[begin:end] = np.arange(position, position + len(tokens))
        self._seq[begin:end], self._logits[begin:end] = sequence, 0
        self._logits[end - outputs : end] = 1
        self.rows = end
        return end - max(1, outputs)

    def decode(self) -> None:
        """Run the batch. Raises DecodeAborted, KvCacheFull, or Fault ENGINE_CRASHED."""
        self._batch.n_tokens = self.rows
        code = native.llama_decode(self.handle, self._batch)
        if code == 2:
            raise DecodeAborted
        if code == 1:
            raise KvCacheFull
        if code:
            why = complaint(first=False) or f"code {code}"
            raise Fault(Reason.ENGINE_CRASHED, f"The model could not go on: {why}; try again.")
        # A card works on behind the call. It is waited for here, without the interpreter's lock.
        native.llama_synchronize(self.handle)

    def sample(self, sampler: Sampler, row: int) -> int:
        """Choose the token after `row`, which must have logits: the native side ends the process
        over one that has none.
        """
        return sampler.sample(self.handle, row)

    def logits(self, row: int) -> NDArray[np.float32]:
        """Of the token after `row`, one for each of the vocabulary: the native memory itself, until
        the next decode. `row` must have logits, as for `sample`.
        """
        row_of_them = self._logits_kind.from_address(_logits_of(self.handle, row))
        return np.frombuffer(memoryview(row_of_them), np.float32)

    def cut(self, sequence: int, position: int) -> bool:
        """Forget the sequence's cells from `position` on; False: it cannot be cut there.

        Recurrent states cannot be cut in the middle; from 0 on it always works.
        """
        return bool(native.llama_memory_seq_rm(self._memory, sequence, position, -1))

    def copy(self, source: int, sequence: int, begin: int, end: int = -1) -> None:
        """Have `sequence` hold the cells of `source` from position `begin` to `end`, -1: all that
        follow, too.
        """
        native.llama_memory_seq_cp(self._memory, source, sequence, begin, end)

    def drop(self, sequence: int, tokens: int) -> None:
        """Have the sequence hold its first `tokens` cells no more; the model must have no recurrent
        state.
        """
        native.llama_memory_seq_rm(self._memory, sequence, 0, tokens)

    def reusable(self, sequence: int, tokens: int) -> bool:
        """The cells of its first `tokens` are all there that what follows them can see: with a
        sliding window some may have slid out, which `cut` does not say.
        """
        first = int(native.llama_memory_seq_pos_min(self._memory, sequence))
        if first < 0 or self.held_tokens(sequence) < tokens:
            return False
        return first == 0 or (0 < self._window_tokens <= tokens - first)

    def save(self, sequence: int) -> memoryview:
        """The state of a sequence, to be kept in host memory; empty: it cannot be saved."""
        size = self.saved_bytes(sequence)
        state = np.empty(size, np.uint8).data  # megabytes, which need no zeros first
        buffer = (ctypes.c_uint8 * size).from_buffer(state)
        written = int(native.llama_state_seq_get_data(self.handle, buffer, size, sequence))
        return state[:written]

    def saved_bytes(self, sequence: int) -> int:
        """What `save` would return."""
        return int(native.llama_state_seq_get_size(self.handle, sequence))

    def restore(self, sequence: int, state: memoryview) -> bool:
        """Put a saved state into an empty sequence; False: there are no cells for it."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer(state)
        read = int(native.llama_state_seq_set_data(self.handle, buffer, len(state), sequence))
        if read == 0:
            self.cut(sequence, 0)
        return read > 0

    def held_tokens(self, sequence: int) -> int:
        """Cells the sequence holds."""
        return int(native.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def close(self) -> None:
        """Free the cache."""
        if self.handle:
            native.llama_free(self.handle)
            self.handle = None
