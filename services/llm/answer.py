"""One answer on its way: its tokens, its text, its limits and its times. Pure: now is an argument.

The decode loop asks what it owes and hands it tokens; it says what to send. The native library,
threads and the reader's side stay out.
"""

from collections.abc import Mapping
from types import MappingProxyType

from services.llm.reply import Reply, ReplyForm, Said
from services.llm.values import (
    Chunk,
    Finish,
    FinishReason,
    GenerateParams,
    PrefillProgress,
    Speculation,
    Timings,
    TokenLogprob,
    Usage,
)


class Times:
    """When an answer came to its parts, in seconds of one clock; `arrived_s` is the request's."""

    __slots__ = ("arrived_s", "first_s", "last_s", "started_s", "tokenize_s")

    def __init__(self, arrived_s: float, tokenize_s: float) -> None:
        self.arrived_s, self.tokenize_s = arrived_s, tokenize_s
        self.started_s: float | None = None
        self.first_s: float | None = None
        self.last_s = arrived_s

    def told(self) -> Timings:
        """Where the time went."""
        started = self.arrived_s if self.started_s is None else self.started_s
        first = self.last_s if self.first_s is None else self.first_s
        return Timings(
            tokenize_ms=1e3 * self.tokenize_s,
            engine_wait_ms=1e3 * max(0.0, started - self.arrived_s),
            prefill_ms=1e3 * max(0.0, first - started),
            first_token_ms=1e3 * (first - self.arrived_s),
            decode_ms=1e3 * (self.last_s - first),
        )


class Answer:
    """`tokens` grows from the prompt to prompt and answer; the first `cached` are in the KV cache.

    `limit_tokens` is the longest completion, already cut to what the context leaves. `visible` are
    the control tokens that the form is read by: others have no bytes.
    """

    __slots__ = (
        "_reasoning_tokens",
        "_reply",
        "_unsent",
        "_unsent_logprobs",
        "_visible",
        "accepted_tokens",
        "cached",
        "choice",
        "drafted_tokens",
        "limit_tokens",
        "params",
        "prompt_tokens",
        "reused_tokens",
        "saved_calls",
        "speculates",
        "times",
        "tokens",
    )

    def __init__(
        self,
        tokens: list[int],
        params: GenerateParams,
        *,
        form: ReplyForm,
        visible: Mapping[int, bytes] = MappingProxyType({}),
        limit_tokens: int,
        times: Times,
        choice: int = 0,
        speculates: bool = False,
    ) -> None:
        self.tokens, self.params, self.limit_tokens = tokens, params, limit_tokens
        self.choice, self.times, self.speculates = choice, times, speculates
        self.prompt_tokens, self.cached = len(tokens), 0
        self.reused_tokens = 0
        """Of the prompt, found in the prefix cache."""
        self.drafted_tokens = self.accepted_tokens = self.saved_calls = 0
        self._visible = visible
        self._reply = Reply(form, params.stop, params.max_sentences)
        self._unsent, self._reasoning_tokens = 0, 0
        self._unsent_logprobs: list[TokenLogprob] = []

    @property
    def owed_tokens(self) -> int:
        """Tokens that are not in the KV cache yet."""
        return len(self.tokens) - self.cached

    @property
    def left_tokens(self) -> int:
        """How many more the completion may have."""
        return self.limit_tokens - (len(self.tokens) - self.prompt_tokens)

    @property
    def thinking(self) -> bool:
        """What comes next is reasoning."""
        return self._reply.thinking

    def start(self, now_s: float) -> None:
        """A decode step with it begins; only the first counts."""
        if self.times.started_s is None:
            self.times.started_s = now_s

    def progress(self) -> Chunk:
        """Part of the prompt is processed."""
        return Chunk(prefill=PrefillProgress(self.cached, self.prompt_tokens), choice=self.choice)

    def take(
        self,
        token: int,
        data: bytes,
        is_end: bool,
        now_s: float,
        logprob: TokenLogprob | None = None,
    ) -> Chunk | None:
        """The next token, chosen; what to send, if anything became certain."""
        self._now(now_s)
        if is_end and not self.params.ignore_eos:
            return self.end()
        self.tokens.append(token)
        self._unsent += 1
        if logprob is not None:
            self._unsent_logprobs.append(logprob)
        said = self._reply.feed(data or self._visible.get(token, b""))
        self._reasoning_tokens += self._reply.thinking or bool(said.reasoning)
        if said.over:
            return self._finish(FinishReason.STOP, said)
        if self.left_tokens <= 0:
            return self._finish(FinishReason.LENGTH, said)
        if said.text or said.reasoning or said.tool_calls:
            return self._chunk(said)
        return None

    def end(self) -> Chunk:
        """The answer has come to its own end."""
        return self._finish(FinishReason.STOP, Said())

    def too_unlikely(self, now_s: float) -> Chunk:
        """The next token is less likely than the request wants; it is not taken."""
        self._now(now_s)
        return self.end()

    def _now(self, now_s: float) -> None:
        self.times.last_s = now_s
        if self.times.first_s is None:
            self.times.first_s = now_s

    def _chunk(self, said: Said, finish: Finish | None = None) -> Chunk:
        tokens, self._unsent = self._unsent, 0
        logprobs, self._unsent_logprobs = tuple(self._unsent_logprobs), []
        return Chunk(
            said.text, tokens, None, finish, self.choice, said.reasoning, said.tool_calls, logprobs
        )

    def _finish(self, reason: FinishReason, said: Said) -> Chunk:
        if not said.over:
            rest = self._reply.flush()
            said = Said(
                said.text + rest.text,
                said.reasoning + rest.reasoning,
                said.tool_calls + rest.tool_calls,
                rest.stop,
            )
        if reason is FinishReason.STOP and self._reply.called:
            reason = FinishReason.TOOL_CALLS
        usage = Usage(
            self.prompt_tokens,
            len(self.tokens) - self.prompt_tokens,
            self.reused_tokens,
            self._reasoning_tokens,
        )
        return self._chunk(
            said, Finish(reason, said.stop, usage, self.times.told(), self._speculation())
        )

    def _speculation(self) -> Speculation | None:
        if not self.speculates:
            return None
        return Speculation(self.drafted_tokens, self.accepted_tokens, self.saved_calls)
