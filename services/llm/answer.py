"""One answer on its way: its tokens, its text, its limits and its times. Pure: now is an argument.

The decode loop asks what it owes and hands it tokens; it says what to send. The native library,
threads and the reader's side stay out.
"""

from services.llm.text import AnswerText
from services.llm.values import (
    Chunk,
    Finish,
    FinishReason,
    GenerateParams,
    PrefillProgress,
    Timings,
    Usage,
)


class Answer:
    """`tokens` grows from the prompt to prompt and answer; the first `cached` are in the KV cache.

    `limit_tokens` is the longest completion, already cut to what the context leaves.
    """

    __slots__ = (
        "_arrived_s",
        "_first_s",
        "_last_s",
        "_started_s",
        "_text",
        "_tokenize_s",
        "_unsent",
        "cached",
        "limit_tokens",
        "params",
        "prompt_tokens",
        "tokens",
    )

    def __init__(
        self,
        tokens: list[int],
        params: GenerateParams,
        *,
        limit_tokens: int,
        arrived_s: float,
        tokenize_s: float,
    ) -> None:
        self.tokens, self.params, self.limit_tokens = tokens, params, limit_tokens
        self.prompt_tokens, self.cached = len(tokens), 0
        self._text, self._unsent = AnswerText(params.stop), 0
        self._arrived_s, self._tokenize_s = arrived_s, tokenize_s
        self._started_s: float | None = None
        self._first_s: float | None = None
        self._last_s = arrived_s

    @property
    def owed_tokens(self) -> int:
        """Tokens that are not in the KV cache yet."""
        return len(self.tokens) - self.cached

    def start(self, now_s: float) -> None:
        """A decode step with it begins; only the first counts."""
        if self._started_s is None:
            self._started_s = now_s

    def progress(self) -> Chunk:
        """Part of the prompt is processed."""
        return Chunk(prefill=PrefillProgress(self.cached, self.prompt_tokens))

    def take(self, token: int, data: bytes, is_end: bool, now_s: float) -> Chunk | None:
        """The next token, chosen; what to send, if anything became certain."""
        self._last_s = now_s
        if self._first_s is None:
            self._first_s = now_s
        if is_end and not self.params.ignore_eos:
            return self._finish(FinishReason.STOP, self._text.flush())
        self.tokens.append(token)
        self._unsent += 1
        text, stop = self._text.feed(data)
        if stop:
            return self._finish(FinishReason.STOP, text, stop)
        if len(self.tokens) - self.prompt_tokens >= self.limit_tokens:
            return self._finish(FinishReason.LENGTH, text + self._text.flush())
        return Chunk(text, self._sent()) if text else None

    def _sent(self) -> int:
        unsent, self._unsent = self._unsent, 0
        return unsent

    def _finish(self, reason: FinishReason, text: str, stop: str = "") -> Chunk:
        usage = Usage(self.prompt_tokens, len(self.tokens) - self.prompt_tokens)
        return Chunk(text, self._sent(), None, Finish(reason, stop, usage, self._timings()))

    def _timings(self) -> Timings:
        started = self._arrived_s if self._started_s is None else self._started_s
        first = self._last_s if self._first_s is None else self._first_s
        return Timings(
            tokenize_ms=1e3 * self._tokenize_s,
            engine_wait_ms=1e3 * (started - self._arrived_s),
            prefill_ms=1e3 * (first - started),
            first_token_ms=1e3 * (first - self._arrived_s),
            decode_ms=1e3 * (self._last_s - first),
        )
