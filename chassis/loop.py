"""The event loop that every process of the house runs on.

Apart from `main`, so that an engine process, which has no configuration to read, imports none of
what reading it takes.
"""

import asyncio
from collections.abc import Awaitable

import uvloop


def run(main: Awaitable[None]) -> None:
    """Run a coroutine on uvloop to its end."""

    async def wrapped() -> None:
        await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wrapped())
