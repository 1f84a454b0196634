"""Text ↔ tokens of one model, for who wants to see them, and for models that embed.

Safe from several threads; nothing native is kept between calls. Prompts of conversations are made
in `prompts.py`, which this borrows where one is to be shown.
"""

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import llama_cpp as native

from chassis.errors import Fault, Reason
from services.llm import gguf_meta
from services.llm.llama_api import Model
from services.llm.prompts import Prompts
from services.llm.rerank_form import RerankForm
from services.llm.values import Conversation

MAX_BYTES_PER_TOKEN = 64
"""A text with more bytes than this for every token of the context is not even tokenised."""


class Tokenizer:
    """Of one model, or of its vocabulary alone."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._handle = native.llama_model_get_vocab(model.handle)
        self.size = model.vocabulary.size

    @classmethod
    def open(cls, path: Path) -> "Tokenizer":
        """Of a file, without its weights. Raises Fault MODEL_FAILED."""
        gguf_meta.read(path)
        return cls(Model(str(path), vocabulary_only=True))

    @cached_property
    def prompts(self) -> Prompts:
        """For conversations and bare prompts; looks at every token."""
        return Prompts(self._model)

    def encode(
        self, text: str, *, add_special: bool, parse_special: bool = False, param: str = "text"
    ) -> list[int]:
        """The tokens of `text`, with `add_special` between the tokens that begin and end one.

        With `parse_special` names of control tokens are those tokens, else they are text.
        """
        raw = text.encode("utf-8", "replace")
        room = len(raw) + 16
        buffer = (ctypes.c_int32 * room)()
        count = native.llama_tokenize(
            self._handle, raw, len(raw), buffer, room, add_special, parse_special
        )
        if count < 0:
            raise _refused(param, f"`{param}` cannot be tokenised.")
        return list(buffer[:count])

    def render(self, conversation: Conversation) -> list[int]:
        """The tokens of a conversation as the model would see it. Raises Fault INVALID_TEMPLATE."""
        return self.prompts.tokens(conversation)

    def encode_pair(self, query: str, document: str) -> list[int]:
        """What a reranker reads: its own template, or the two between the marks it knows."""
        if self._rerank_form is not None:
            segments = self._rerank_form.segments(query, document)
            return self._model.vocabulary.tokens(segments, beginning=False)
        marks = self._pair_marks
        first = self.encode(query, add_special=False, param="query")
        second = self.encode(document, add_special=False, param="documents")
        return [*marks[0], *first, *marks[1], *second, *marks[2]]

    @cached_property
    def _rerank_form(self) -> RerankForm | None:
        source = native.llama_model_chat_template(self._model.handle, b"rerank")
        if not source:
            return None
        return RerankForm(source.decode("utf-8", "replace"), self._model.vocabulary.controls())

    @cached_property
    def _pair_marks(self) -> tuple[list[int], list[int], list[int]]:
        """Before, between and behind the two: `<s>q</s></s>d</s>`, `[CLS]q[SEP]d[SEP]`."""
        vocab = self._handle
        sep = int(native.llama_vocab_sep(vocab))
        eos = int(native.llama_vocab_eos(vocab))
        bos = [int(native.llama_vocab_bos(vocab))] if native.llama_vocab_get_add_bos(vocab) else []
        end = [eos if eos >= 0 else sep] if native.llama_vocab_get_add_eos(vocab) else []
        parting = [sep] if native.llama_vocab_get_add_sep(vocab) and sep >= 0 else []
        return bos, end + parting, end or parting

    def check_known(self, tokens: Sequence[int], param: str) -> None:
        """Raises Fault INVALID_REQUEST for a token that the model does not have."""
        # The native library ends the process over one.
        wrong = next((token for token in tokens if not 0 <= token < self.size), None)
        if wrong is not None:
            raise _refused(
                param,
                f"`{param}` holds the token {wrong}; this model's tokens are 0 to {self.size - 1}.",
            )

    def check_bytes(self, text: str, context_tokens: int, param: str) -> None:
        """Refuse, before any work, what is far too long. Raises Fault CONTEXT_LENGTH_EXCEEDED."""
        most = MAX_BYTES_PER_TOKEN * context_tokens
        if len(text) > most or len(text.encode("utf-8", "replace")) > most:
            raise Fault(
                Reason.CONTEXT_LENGTH_EXCEEDED,
                f"This model's context is {context_tokens} tokens, but `{param}` has more than "
                f"{most} bytes; shorten it.",
                metadata={"param": param, "context_tokens": str(context_tokens)},
            )

    def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each token; of a control token its name."""
        buffer = ctypes.create_string_buffer(256)
        found = []
        for token in tokens:
            size = native.llama_token_to_piece(self._handle, token, buffer, len(buffer), 0, True)
            if size < 0:  # the size it needs
                buffer = ctypes.create_string_buffer(-size)
                size = native.llama_token_to_piece(self._handle, token, buffer, -size, 0, True)
            found.append(buffer.raw[: max(0, size)])
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; bytes that are no whole character become U+FFFD."""
        self.check_known(tokens, "tokens")
        ids = (ctypes.c_int32 * max(1, len(tokens)))(*tokens)
        room = 8 * len(tokens) + 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = native.llama_detokenize(
                self._handle, ids, len(tokens), buffer, room, False, True
            )
            if size >= 0:
                return buffer.raw[:size].decode("utf-8", "replace")
            room = -size


def _refused(param: str, message: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, message, metadata={"param": param})
