"""Which models stand behind a name: one key, or the twins of a family.

What is known is what the scheduler listed last. It is asked again for a name that is not in there,
once a second at most, and when what is known is some seconds old: models come and go while the
house runs, and may change. What is not known here is left to the scheduler, which has the last word
on every name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from chassis.errors import Fault
from cohabit.models.v1 import models_pb2
from edge.keys.caller import Caller

_FRESH_S = 1.0
_OLD_S = 5.0
_LOOK_S = 1.0
"""How long a look may take where something is known already."""

Listing = Callable[[], Awaitable[Sequence[models_pb2.Model]]]


class Roster:
    """Remembers a listing, which raises Fault where the scheduler does not answer."""

    def __init__(self, listing: Listing, fresh_s: float = _FRESH_S, old_s: float = _OLD_S) -> None:
        self._listing = listing
        self._fresh_s, self._old_s = fresh_s, old_s
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
                if name not in self._named and not self._younger_than(self._fresh_s):
                    await self._look()
        elif not self._younger_than(self._old_s) and not self._looking.locked():
            # One who asks looks; the others go by what is known.
            async with self._looking:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._look()
        return self._named.get(name, ())

    def _younger_than(self, seconds: float) -> bool:
        now_s = asyncio.get_running_loop().time()
        return self._looked_s is not None and now_s - self._looked_s < seconds

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
