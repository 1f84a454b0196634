"""Messages from one who never waits to one who may be slow: the newest of each kind, bounded."""

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """At most `most` kinds of messages wait to be read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._unread: dict[str, T] = {}
        self._wake = asyncio.Event()
        self._over = False
        self._error: Exception | None = None

    def put(self, kind: str, message: T) -> bool:
        """Leave a message, in place of an unread one of its kind; False when there is no room."""
        if kind not in self._unread and len(self._unread) >= self._most:
            return False
        self._unread[kind] = message
        self._wake.set()
        return True

    def end(self, error: Exception | None = None) -> None:
        """Nothing more will come; the reader, having read what is left, ends with `error`."""
        if not self._over:
            self._over, self._error = True, error
            self._wake.set()

    async def next(self) -> T | None:
        """The message that has waited longest; None, or the error, at the end."""
        await self._wake.wait()
        if not self._unread:
            if self._error is not None:
                raise self._error
            return None
        message = self._unread.pop(next(iter(self._unread)))
        if not self._unread and not self._over:
            self._wake.clear()
        return message
