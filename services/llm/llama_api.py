"""A thin, typed layer over the low-level API of llama-cpp-python.

Everything here maps to one or two native calls. Many of them end the process when misused, so the
rules that keep them safe live here: positions and rows are written from one plan, only rows with
logits are sampled, a context belongs to the one thread that decodes with it. Scheduling and text
stay out, samplers are in `llama_sampler.py`. ctypes releases the interpreter's lock during every
call.
"""

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import llama_cpp as native
import numpy as np

from chassis.errors import Fault, Reason
from services.llm.llama_sampler import Sampler
from services.llm.template import Segment

_LOG_ERROR = 4
_SPECIAL = (
    native.LLAMA_TOKEN_ATTR_CONTROL
    | native.LLAMA_TOKEN_ATTR_UNKNOWN
    | native.LLAMA_TOKEN_ATTR_UNUSED
)
_errors: deque[str] = deque(maxlen=16)


def _keep_errors(level: int, text: bytes, _data: Any) -> None:
    if level == _LOG_ERROR:
        _errors.append(text.decode("utf-8", "replace").strip()[:500])


_LOG = native.llama_log_callback(_keep_errors)  # at module level: the library keeps calling it


def complaint(*, first: bool) -> str:
    """What the library complained of since `start`: its first words name the cause of a failed
    load, its last ones belong to the call that just failed. Empty: nothing.
    """
    line = _errors[0 if first else -1] if _errors else ""
    return line.partition(": ")[2].rstrip(".") or line  # without the native function's name


def start() -> None:
    """Silence the library, keeping its errors for `complaint`, and initialise it."""
    # A failed native assertion would start a debugger to print its stack.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    native.llama_log_set(_LOG, ctypes.c_void_p(0))
    _errors.clear()
    native.llama_backend_init()


class _Weights:
    """The native model, freed when nothing refers to it: a prompt that is being tokenised on some
    thread while its engine closes keeps it for that long.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        # Not at interpreter exit, where a decode may still be running.
        weakref.finalize(self, native.llama_model_free, handle).atexit = False


class Model:
    """Weights, or with `vocabulary_only` just their vocabulary.

    Their memory is freed when the model, its vocabulary and its contexts are all dropped.
    """

    def __init__(
        self,
        path: str,
        *,
        gpu_layers: int = 0,
        vocabulary_only: bool = False,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        start()
        failed: list[BaseException] = []

        def report(done: float, _data: Any) -> bool:
            try:
                progress(done)
            except BaseException as error:  # must not cross the native frames
                failed.append(error)
            return not failed

        params = native.llama_model_default_params()
        params.n_gpu_layers, params.vocab_only = gpu_layers, vocabulary_only
        callback = native.llama_progress_callback(report)
        params.progress_callback = callback
        handle = native.llama_model_load_from_file(os.fsencode(path), params)
        if failed:
            raise failed[0]
        if not handle:
            raise Fault(
                Reason.MODEL_FAILED,
                f"The model cannot be loaded: {complaint(first=True) or 'it gave no reason'}.",
            )
        self._weights = _Weights(handle)
        self.vocabulary = Vocabulary(self._weights)

    @property
    def handle(self) -> Any:
        """For a context."""
        return self._weights.handle

    @property
    def trained_context_tokens(self) -> int:
        """0 where the file does not say."""
        return int(native.llama_model_n_ctx_train(self.handle))

    @property
    def weights_bytes(self) -> int:
        """Of all tensors."""
        return int(native.llama_model_size(self.handle))

    @property
    def description(self) -> str:
        """E.g. "llama 135M Q4_1"."""
        text = ctypes.create_string_buffer(128)
        native.llama_model_desc(self.handle, text, len(text))
        return text.value.decode("utf-8", "replace")

    @property
    def chat_template(self) -> str | None:
        """The file's own; None: it has none."""
        source = native.llama_model_chat_template(self.handle, None)
        return source.decode("utf-8", "replace") if source else None

    @property
    def writes_text(self) -> bool:
        """False for encoders and for files without a vocabulary."""
        if self.vocabulary.size == 0 or native.llama_model_has_encoder(self.handle):
            return False
        return bool(native.llama_model_has_decoder(self.handle))


class InfillMarks(NamedTuple):
    """The tokens before a prefix, a suffix, and the middle that the model is to write."""

    prefix: int
    suffix: int
    middle: int


class TokenForm(NamedTuple):
    """What a token stands for: its bytes, for a special one its name."""

    text: bytes
    special: bool
    ends: bool
    """Whether it ends an answer."""


class Vocabulary:
    """Text ↔ tokens. Safe to use from several threads; `piece` fills a cache, each id once."""

    def __init__(self, weights: _Weights) -> None:
        self._weights = weights
        self._handle = handle = native.llama_model_get_vocab(weights.handle)
        self.size = int(native.llama_vocab_n_tokens(handle))
        self._pieces: list[bytes | None] = [None] * self.size
        self._ends: list[bool] = [False] * self.size
        self._buffer = ctypes.create_string_buffer(256)
        self._bos = int(native.llama_vocab_bos(handle))
        self._adds_bos = bool(native.llama_vocab_get_add_bos(handle)) and self._bos >= 0
        self.bos_text = self._text(self._bos)
        self.eos_text = self._text(int(native.llama_vocab_eos(handle)))

    def _text(self, token: int) -> str:
        if not 0 <= token < self.size:
            return ""
        return (native.llama_vocab_get_text(self._handle, token) or b"").decode("utf-8", "replace")

    def longest_token_bytes(self) -> int:
        """No token stands for more text than this; looks at every token, so ask once."""
        texts = (native.llama_vocab_get_text(self._handle, i) or b"" for i in range(self.size))
        return max(1, *(len(text) for text in texts))

    def controls(self) -> list[str]:
        """The names of all control tokens; looks at every token, so ask once."""
        wanted = native.LLAMA_TOKEN_ATTR_CONTROL | native.LLAMA_TOKEN_ATTR_UNKNOWN
        ids = range(self.size)
        return [self._text(i) for i in ids if native.llama_vocab_get_attr(self._handle, i) & wanted]

    def tokens(self, segments: Iterable[Segment], *, beginning: bool = True) -> list[int]:
        """A prompt; with `beginning` also the beginning token, where the vocabulary wants one and
        none is there.
        """
        tokens = [t for s in segments for t in self._tokenize(s.text.encode(), s.control)]
        if beginning and tokens[:1] != self.beginning:
            tokens[:0] = self.beginning
        return tokens

    @property
    def beginning(self) -> list[int]:
        """The token that prompts begin with; none for vocabularies that want none."""
        return [self._bos] if self._adds_bos else []

    def infill_marks(self) -> "InfillMarks | None":
        """None for models that were not trained to fill a gap."""
        marks = InfillMarks(
            int(native.llama_vocab_fim_pre(self._handle)),
            int(native.llama_vocab_fim_suf(self._handle)),
            int(native.llama_vocab_fim_mid(self._handle)),
        )
        return marks if min(marks) >= 0 else None

    def _tokenize(self, text: bytes, control: bool) -> list[int]:
        room = len(text) + 16
        buffer = (ctypes.c_int32 * room)()
        count = native.llama_tokenize(self._handle, text, len(text), buffer, room, False, control)
        if count < 0:
            raise Fault(Reason.INVALID_REQUEST, "The prompt cannot be tokenised.")
        return list(buffer[:count])

    def piece(self, token: int) -> tuple[bytes, bool]:
        """The bytes of a token (none for a control token), and whether it ends an answer.

        For the thread that decodes.
        """
        known = self._pieces[token]
        if known is None:
            known = self._pieces[token] = self._piece(token)
            self._ends[token] = bool(native.llama_vocab_is_eog(self._handle, token))
        return known, self._ends[token]

    def _piece(self, token: int) -> bytes:
        count = native.llama_token_to_piece(
            self._handle, token, self._buffer, len(self._buffer), 0, False
        )
        if count < 0:  # the size it needs
            self._buffer = ctypes.create_string_buffer(-count)
            count = native.llama_token_to_piece(self._handle, token, self._buffer, -count, 0, False)
        return self._buffer.raw[: max(0, count)]

    def forms(self) -> list[TokenForm]:
        """Every token's, for grammars. A tenth of a second for 50,000 tokens, so ask once; any
        thread.
        """
        buffer = ctypes.create_string_buffer(self.longest_token_bytes() + 16)
        return [self._form(token, buffer) for token in range(self.size)]

    def _form(self, token: int, buffer: "ctypes.Array[ctypes.c_char]") -> TokenForm:
        count = native.llama_token_to_piece(self._handle, token, buffer, len(buffer), 0, True)
        attributes = native.llama_vocab_get_attr(self._handle, token)
        # Not user-defined ones: these are written as plain text, as `piece` has them.
        special = bool(attributes & _SPECIAL)
        ends = bool(native.llama_vocab_is_eog(self._handle, token))
        return TokenForm(buffer.raw[: max(0, count)], special, ends)


class DecodeAborted(Exception):
    """The abort flag was set during a decode; the caller rolls its sequences back."""


class Context:
    """A KV cache and its batch. All of it, but `abort`, is for the one thread that decodes.

    The cache is unified: one pool of cells for all sequences, each of which may take what the
    others leave. The batch lives in numpy arrays that the native side reads in place.
    """

    def __init__(
        self, model: Model, *, cells: int, sequences: int, batch_tokens: int, threads: int
    ) -> None:
        params = native.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.kv_unified = cells, sequences, True
        params.n_batch = params.n_ubatch = batch_tokens
        params.n_outputs_max = sequences  # logits of one row a sequence, not of a whole batch
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        params.swa_full = True  # keep what slid out of a window: a rolled-back step needs it
        self._model = model
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

    def add_rows(
        self, sequence: int, position: int, tokens: Sequence[int], *, wants_logits: bool
    ) -> int:
        """Append tokens of one sequence; the last row, with logits if wanted."""
        begin, end = self.rows, self.rows + len(tokens)
        self._token[begin:end] = tokens
        self._pos[begin:end] = np.arange(position, position + len(tokens))
        self._seq[begin:end], self._logits[begin:end] = sequence, 0
        self._logits[end - 1] = wants_logits
        self.rows = end
        return end - 1

    def decode(self) -> None:
        """Run the batch. Raises DecodeAborted, or Fault ENGINE_CRASHED."""
        self._batch.n_tokens = self.rows
        code = native.llama_decode(self.handle, self._batch)
        if code == 2:
            raise DecodeAborted
        if code:
            why = "the KV cache is full" if code == 1 else complaint(first=False) or f"code {code}"
            raise Fault(Reason.ENGINE_CRASHED, f"The model could not go on: {why}; try again.")

    def sample(self, sampler: Sampler, row: int) -> int:
        """Choose the token after `row`, which must have logits: the native side ends the process
        over one that has none.
        """
        return int(native.llama_sampler_sample(sampler.handle, self.handle, row))

    def cut(self, sequence: int, position: int) -> bool:
        """Forget the sequence's cells from `position` on; False: it cannot be cut there.

        Recurrent states cannot be cut in the middle; from 0 on it always works.
        """
        return bool(native.llama_memory_seq_rm(self._memory, sequence, position, -1))

    def held_tokens(self, sequence: int) -> int:
        """Cells the sequence holds."""
        return int(native.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def close(self) -> None:
        """Free the cache."""
        if self.handle:
            native.llama_free(self.handle)
            self.handle = None
