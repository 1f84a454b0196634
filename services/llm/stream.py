"""The reader's side of an answer: chunks cross from the decode thread to the event loop here.

All that a step made for one event loop crosses in one call, and what a reader has not taken yet
becomes one chunk a choice: tokens that are ready together travel together. The bound is on tokens,
and the decode thread, which must not wait for anybody, enforces it by asking for the backlog.
"""

import asyncio
from collections.abc import Iterable

from chassis.errors import Fault
from services.llm.values import Chunk

Event = Chunk | Fault


class AnswerStream:
    """All choices of one request. Made in the event loop that reads it."""

    def __init__(self, choices: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.over = [asyncio.Event() for _ in range(choices)]
        """The choice has ended, one way or another, and holds no place."""
        self._ready = asyncio.Event()
        self._chunks: dict[int, Chunk] = {}
        self._fault: Fault | None = None
        # One writer each, so no lock: the decode thread counts in, the reader counts out.
        self._sent_tokens = 0
        self._taken_tokens = 0

    def sending(self, tokens: int) -> int:
        """Decode thread: `tokens` more are on their way; the backlog with them."""
        self._sent_tokens += tokens
        return self._sent_tokens - self._taken_tokens

    def put(self, choice: int, event: Event) -> None:
        """Event loop: what `deliver` brought."""
        if isinstance(event, Fault):
            self._fault = self._fault or event
            self.over[choice].set()
        else:
            before = self._chunks.get(choice)
            self._chunks[choice] = event if before is None else _joined(before, event)
            if event.finish is not None:
                self.over[choice].set()
        self._ready.set()

    async def next(self) -> list[Chunk]:
        """All that came since the last call, one chunk a choice; waits for it. Raises the Fault
        that ended the answer, after the text before it.
        """
        await self._ready.wait()
        if not self._chunks:
            assert self._fault is not None  # noqa: S101  ready means one of the two
            raise self._fault
        chunks, self._chunks = list(self._chunks.values()), {}
        self._taken_tokens += sum(chunk.tokens for chunk in chunks)
        if self._fault is None:
            self._ready.clear()
        return chunks


def _joined(first: Chunk, then: Chunk) -> Chunk:
    return Chunk(
        first.text + then.text,
        first.tokens + then.tokens,
        then.prefill,
        then.finish,
        first.choice,
        first.reasoning + then.reasoning,
        first.tool_calls + then.tool_calls,
        first.logprobs + then.logprobs,
    )


Delivery = tuple[AnswerStream, int, Event]
"""Whose it is, which choice, and what."""


def deliver(items: Iterable[Delivery]) -> None:
    """Event loop: hand over what one step made."""
    for stream, choice, event in items:
        stream.put(choice, event)
