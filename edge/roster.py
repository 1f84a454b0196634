"""Which models stand behind a name: one key, or the twins of a family.

What is known is what the scheduler listed last. It is asked again only for a name that is not in
there, once a second at most: models do not come and go while the house runs, services do. What is
not known here is left to the scheduler, which has the last word on every name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from chassis.errors import Fault
from cohabit.models.v1 import models_pb2
from edge.keys.caller import Caller

_FRESH_S = 1.0

Listing = Callable[[], Awaitable[Sequence[models_pb2.Model]]]


class Roster:
    """Remembers a listing, which raises Fault where the scheduler does not answer."""

    def __init__(self, listing: Listing, fresh_s: float = _FRESH_S) -> None:
        self._listing = listing
        self._fresh_s = fresh_s
        self._named: dict[str, tuple[models_pb2.Model, ...]] = {}
        self._looked_s: float | None = None
        self._looking = asyncio.Lock()

    async def behind(self, name: str, caller: Caller) -> tuple[models_pb2.Model, ...]:
        """The models that may serve `caller`, who asks for `name`; none when it is not known.

        Raises Fault when they are not for this caller.
        """
        behind = await self._behind(name)
        caller.check_model(name, behind)
        return behind

    async def knows(self, name: str) -> bool:
        """Whether there is anything of that name."""
        return bool(await self._behind(name))

    async def _behind(self, name: str) -> tuple[models_pb2.Model, ...]:
        if name not in self._named:
            async with self._looking:
                if name not in self._named and not self._fresh():
                    await self._look()
        return self._named.get(name, ())

    def _fresh(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return self._looked_s is not None and now_s - self._looked_s < self._fresh_s

    async def _look(self) -> None:
        try:
            self._named = by_name(await self._listing())
        except Fault:
            pass  # the scheduler will say so itself to the request
        finally:
            self._looked_s = asyncio.get_running_loop().time()


def by_name(models: Sequence[models_pb2.Model]) -> dict[str, tuple[models_pb2.Model, ...]]:
    """Models by their family and by their key; a key goes before a family of the same name."""
    named: dict[str, tuple[models_pb2.Model, ...]] = {}
    for model in models:
        if model.family:
            named[model.family] = (*named.get(model.family, ()), model)
    return named | {model.key: (model,) for model in models}
