"""A thin, typed layer over the part of llama-cpp-python that makes vectors of texts.

As in `llama_api.py`, everything maps to one or two native calls, and the rules that keep them from
ending the process live here: a call never holds more tokens than the context was made for, every
sequence has rows, every row is an output. Encoders and decoders go the same way: a decode of a
model without a KV cache encodes. A context belongs to the one thread that computes with it.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp as native
import numpy as np

from chassis.errors import Fault, Reason
from services.llm.llama_api import Model, complaint
from services.llm.similarity import Floats

MOST_SEQUENCES = 256
"""The native library's own bound."""
RANK = native.LLAMA_POOLING_TYPE_RANK
_ABORTED = 2


class CallAborted(Exception):
    """The abort flag was set during a call, which has made nothing."""


class VectorContext:
    """Computes one row of floats a text: its pooled vector, or the logits of its rank head.

    `pooling` is a native pooling type. All of it, but `abort`, is for one thread.
    """

    def __init__(self, model: Model, *, call_tokens: int, pooling: int, threads: int) -> None:
        params = native.llama_context_default_params()
        # A text is never divided: pooling, and attention that looks ahead, need it whole.
        params.n_ctx = params.n_batch = params.n_ubatch = call_tokens
        params.n_seq_max, params.kv_unified = MOST_SEQUENCES, True
        params.n_threads = params.n_threads_batch = threads
        params.embeddings, params.pooling_type = True, pooling
        params.no_perf = params.swa_full = True
        self._model = model
        self.call_tokens = call_tokens
        self.handle = native.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise Fault(
                Reason.MODEL_FAILED,
                f"No room for the model's context: {complaint(first=False) or 'out of memory'}.",
            )
        self._memory = native.llama_get_memory(self.handle)  # None: an encoder
        classes = int(native.llama_model_n_cls_out(model.handle))
        vector = int(native.llama_model_n_embd_out(model.handle))
        self.width = max(1, classes) if pooling == RANK else vector
        self._make_batch(call_tokens)
        self._make_abort()

    def _make_batch(self, size: int) -> None:
        self._token, self._pos = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self._seq = np.zeros(size, np.int32)
        # Kept: the native side reads them in place.
        self._fixed = (
            np.ones(size, np.int32),
            self._seq.ctypes.data + 4 * np.arange(size, dtype=np.uintp),
            np.ones(size, np.int8),
        )
        counts, seq_rows, outputs = self._fixed
        batch = self._batch = native.llama_batch()
        for name, array in (
            ("token", self._token),
            ("pos", self._pos),
            ("n_seq_id", counts),
            ("seq_id", seq_rows),
            ("logits", outputs),
        ):
            kind = type(getattr(batch, name))
            setattr(batch, name, ctypes.cast(array.ctypes.data, kind))

    def _make_abort(self) -> None:
        # Polled hundreds of times in a call, so it is libc's strlen: "" (go on) or "x" (abort).
        self._flag = ctypes.create_string_buffer(2)
        strlen: Any = ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p).value
        self._poll = native.ggml_abort_callback(strlen)
        native.llama_set_abort_callback(self.handle, self._poll, ctypes.addressof(self._flag))

    def abort(self, wanted: bool) -> None:
        """Abort the call that runs (CPU only; elsewhere it runs to its end). Any thread."""
        self._flag[0] = b"x" if wanted else b"\0"

    def compute(self, texts: Sequence[Sequence[int]]) -> Floats:
        """[texts, width]. All of them together have at most `call_tokens`, none is empty.

        Raises CallAborted, or Fault ENGINE_CRASHED.
        """
        if self._memory is not None:
            native.llama_memory_clear(self._memory, False)
        self._batch.n_tokens = self._fill(texts)
        code = native.llama_decode(self.handle, self._batch)
        if code == _ABORTED:
            raise CallAborted
        if code:
            why = complaint(first=False) or f"code {code}"
            raise Fault(Reason.ENGINE_CRASHED, f"The model could not go on: {why}; try again.")
        return np.stack([self._row(sequence) for sequence in range(len(texts))])

    def _fill(self, texts: Sequence[Sequence[int]]) -> int:
        begin = 0
        for sequence, tokens in enumerate(texts):
            end = begin + len(tokens)
            self._token[begin:end] = tokens
            self._pos[begin:end] = np.arange(len(tokens))
            self._seq[begin:end] = sequence
            begin = end
        return begin

    def _row(self, sequence: int) -> Floats:
        found = native.llama_get_embeddings_seq(self.handle, sequence)
        if not found:
            raise Fault(Reason.ENGINE_CRASHED, "The model made no vector of a text; try again.")
        return np.ctypeslib.as_array(found, (self.width,)).copy()

    def close(self) -> None:
        """Free it."""
        if self.handle:
            native.llama_free(self.handle)
            self.handle = None
