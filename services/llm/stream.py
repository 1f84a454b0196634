"""The reader's side of an answer: chunks cross from the decode thread to the event loop here.

All that a step made for one event loop crosses in one call, and what a reader has not taken yet
becomes one chunk: tokens that are ready together travel together. The bound is on tokens, and the
decode thread, which must not wait for anybody, enforces it by asking for the backlog.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from chassis.errors import Fault
from services.llm.values import Chunk

Event = Chunk | Fault


class AnswerStream:
    """Made in the event loop that reads it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        """The answer has ended, one way or another, and holds no place."""
        self._ready = asyncio.Event()
        self._texts: list[str] = []
        self._last: Chunk | None = None
        self._fault: Fault | None = None
        # One writer each, so no lock: the decode thread counts in, the reader counts out.
        self._sent_tokens = 0
        self._taken_tokens = 0
        self._untaken = 0

    def sending(self, tokens: int) -> int:
        """Decode thread: `tokens` more are on their way; the backlog with them."""
        self._sent_tokens += tokens
        return self._sent_tokens - self._taken_tokens

    def put(self, event: Event) -> None:
        """Event loop: what `deliver` brought."""
        if isinstance(event, Fault):
            self._fault = event
            self.over.set()
        else:
            if event.finish is not None:
                self.over.set()
            self._texts.append(event.text)
            self._untaken += event.tokens
            self._last = event
        self._ready.set()

    async def next(self) -> Chunk:
        """All that came since the last call; waits for it. Raises the Fault that ended the answer,
        after the text before it.
        """
        await self._ready.wait()
        if self._last is None:
            assert self._fault is not None  # noqa: S101  ready means one of the two
            raise self._fault
        chunk = replace(self._last, text="".join(self._texts), tokens=self._untaken)
        self._taken_tokens += self._untaken
        self._texts.clear()
        self._untaken, self._last = 0, None
        if self._fault is None:
            self._ready.clear()
        return chunk


def deliver(items: Iterable[tuple[AnswerStream, Event]]) -> None:
    """Event loop: hand over what one step made."""
    for stream, event in items:
        stream.put(event)
