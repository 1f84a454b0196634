"""A thin, typed layer over the low-level API of llama-cpp-python.

The model and its vocabulary; the context that computes with them is in `llama_context.py`, samplers
are in `llama_sampler.py`. Everything here maps to one or two native calls. Scheduling and text stay
out. ctypes releases the interpreter's lock during every call but those through `kept`.
"""

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import llama_cpp as native

from chassis.errors import Fault, Reason
from services.llm.template import Segment

# A sampler takes microseconds, and a step calls one for every sequence. Through the usual binding
# each call would release the interpreter's lock and wait to get it back from whoever took it, for
# up to a whole switch interval; through this one it keeps it.
kept = ctypes.PyDLL(native.llama_cpp._lib._name, handle=native.llama_cpp._lib._handle)  # noqa: SLF001

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
    def shares_prefixes(self) -> bool:
        """Its state can be cut and copied at any token; a recurrent one only as a whole."""
        handle = self.handle
        return not (native.llama_model_is_recurrent(handle) or native.llama_model_is_hybrid(handle))

    @property
    def window_tokens(self) -> int:
        """How far back its attention sees in the layers with a sliding window; 0: there is none."""
        return int(native.llama_model_n_swa(self.handle))

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

    def texts(self) -> list[bytes]:
        """Of every token, as the file has it; looks at every token, so ask once."""
        get = native.llama_vocab_get_text
        return [get(self._handle, token) or b"" for token in range(self.size)]

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
