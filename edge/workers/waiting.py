"""Waits for whichever comes first."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress


async def first_of(*waits: Awaitable[object]) -> None:
    """Return when one of them has ended; the others are cancelled, and over by then."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
