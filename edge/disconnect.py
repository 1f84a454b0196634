"""A client that goes away ends the work done for it, at once."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.types import Receive

from chassis.errors import Fault, Reason

T = TypeVar("T")


class ClientGone(Fault):
    """How a request ends whose client has left; nobody reads it but the access log."""

    def __init__(self) -> None:
        super().__init__(Reason.CANCELLED, "The client left before the answer was done.")


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Await `work` in this task; cancel it when the client disconnects.

    Call after the body has been read to its end. Raises ClientGone when the client left.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in a task
    gone = False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        # Somebody else (a stopping server) may have cancelled this task too: their wish goes first.
        if gone and task.uncancel() == 0:
            raise ClientGone from None
        raise
    finally:
        watcher.cancel()
