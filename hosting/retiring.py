"""Models that are configured no more: they take nothing new, finish what runs, and are gone.

One that is configured again before it is gone stays, with all that is loaded of it.
"""

import asyncio
from collections.abc import Callable

from chassis import log
from hosting.draining import see_off
from hosting.hosted import Hosted
from hosting.landlord import Landlord


class Retiring:
    """Those of one service that are on their way out."""

    def __init__(
        self, landlord: Landlord, within_s: float, forget: Callable[[Hosted], None]
    ) -> None:
        self._landlord, self._within_s, self._forget = landlord, within_s, forget
        self._leaving: dict[str, asyncio.Task[None]] = {}

    def begin(self, hosted: Hosted) -> None:
        """Have a model go; `forget` is called when nothing is left of it."""
        if hosted.removed:
            return
        hosted.removed = True
        log.get().info("model removed", model=hosted.spec.key)
        self._landlord.tell(hosted)
        key = hosted.spec.key
        task = self._leaving[key] = asyncio.create_task(self._leave(hosted))
        task.add_done_callback(lambda ended: self._ended(key, ended))

    def take_back(self, hosted: Hosted) -> None:
        """It is configured again: what is loaded serves on, unless its end has begun."""
        if not hosted.removed:
            return
        hosted.removed = False
        log.get().info("model configured again", model=hosted.spec.key)
        if (leaving := self._leaving.pop(hosted.spec.key, None)) is not None:
            leaving.cancel()
        self._landlord.tell(hosted)

    async def _leave(self, hosted: Hosted) -> None:
        """What still runs after the time it has is ended."""
        while tenancies := tuple(hosted.tenancies):
            await asyncio.gather(
                *(
                    see_off(self._landlord, hosted, tenancy, self._within_s, force=True)
                    for tenancy in tenancies
                )
            )
        self._forget(hosted)

    def _ended(self, key: str, task: "asyncio.Task[None]") -> None:
        if self._leaving.get(key) is task:
            del self._leaving[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.get().error("bug", exc_info=error)
