"""An answer in one body, sent as its client takes it.

Pictures make bodies of many megabytes; handed over in one piece they would lie in the connection's
buffer for as long as a client that reads nothing pleases.
"""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.errors import Reason
from edge import errors

_PIECE_BYTES = 64 * 1024


class WholeBody(Response):
    """Sent in pieces; a client that takes none for `stall_s` is left, its body cut short."""

    def __init__(self, body: bytes, media_type: str, stall_s: float) -> None:
        super().__init__(body, media_type=media_type)
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        body = memoryview(self.body)
        ends = range(_PIECE_BYTES, len(body) + _PIECE_BYTES, _PIECE_BYTES) or (0,)
        try:
            for end in ends:
                piece = bytes(body[max(0, end - _PIECE_BYTES) : end])
                event = {"type": "http.response.body", "body": piece, "more_body": end < len(body)}
                async with asyncio.timeout(self._stall_s):
                    await send(event)
        except TimeoutError:
            errors.failure.set(Reason.SLOW_READER)
