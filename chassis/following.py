"""The configuration followed while a service runs: read again when its files have changed.

A change is taken when the files have been the same for two looks, so that a file which is just
being written is left alone. One that cannot be used, or is empty, is not taken: the service goes on
by the one it had, says so once, and shows it (`problem`, and a metric). What is done with a change
is the service's own (`apply`); keys that only a restart brings in are named in the log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from chassis import log
from chassis.config import ConfigError, Document, Section, Stamp, load, stamp_of
from chassis.metrics import CONFIGURATION_REFUSED, RESTART_DUE
from chassis.sections import FOLLOWED, waits_for_restart

LOOK_EVERY_S = 1.0
_UNREAD: Stamp = ()
_BUG = "it could not be taken, though nothing seems wrong with it; the log of the service says why"

C = TypeVar("C", bound=Section)
Apply = Callable[[C, Document], Awaitable[None]]
"""Takes what may change in place. Raises ConfigError where it cannot be used."""


class Following(Generic[C]):
    """One service's view of the configuration, as it stands now."""

    def __init__(self, service: str, kind: type[C], started: Document) -> None:
        self._service, self._kind, self._started = service, kind, started
        self._apply: Apply[C] | None = None
        self._seen = self._taken = started.stamp
        self.problem = ""
        """Why the file as it stands is not used; empty: it is."""
        self.restart_keys: tuple[str, ...] = ()
        """Keys whose values in the file take effect when this service restarts."""
        self.told: list[Callable[[], None]] = []
        """Called when `problem` or `restart_keys` have changed."""

    def use(self, apply: Apply[C]) -> None:
        """Have changes taken by `apply`."""
        self._apply = apply

    async def run(self, every_s: float = LOOK_EVERY_S) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.look()
            except Exception:  # one look that failed must not be the last
                log.get().exception("bug")

    async def look(self) -> None:
        """Take what the files say, if they have changed and been quiet since the last look."""
        if self._apply is None and self._service in FOLLOWED:
            return  # it is still being built: whoever takes changes has yet to be named
        before = self._seen
        stamp = self._seen = stamp_of(self._started.path)
        if stamp == self._taken or stamp != before:
            return
        try:
            document, own = await asyncio.to_thread(self._read)
            if stamp_of(self._started.path) != stamp:
                return  # it was written while we read; the next look sees that
            self._taken = stamp
            if self._apply is not None:
                await self._apply(own, document)
        except ConfigError as error:
            # What the system refuses may come right without a change of the file: it may be one
            # that its writer has yet to make readable.
            self._taken = _UNREAD if isinstance(error.__cause__, OSError) else stamp
            self._note(str(error), self.restart_keys)
        except Exception:
            self._taken = stamp  # trying the same again would come to the same
            self._note(f"{self._started.path}: {_BUG}", self.restart_keys)
            raise
        else:
            self._note("", waits_for_restart(self._started, document, self._service))

    def _read(self) -> tuple[Document, C]:
        document = load(self._started.path)
        if not document.data:
            raise ConfigError(f"{document.path}: it is empty, and taken as not written yet")
        return document, document.section(self._service, self._kind)

    def _note(self, problem: str, restart_keys: tuple[str, ...]) -> None:
        if problem:
            if problem != self.problem:
                log.get().warning("configuration refused", problem=problem)
        elif restart_keys and restart_keys != self.restart_keys:
            log.get().warning(
                "configuration changed", takes_effect_on_restart_of=self._service, keys=restart_keys
            )
        else:
            log.get().info("configuration taken")
        if (problem, restart_keys) == (self.problem, self.restart_keys):
            return
        self.problem, self.restart_keys = problem, restart_keys
        CONFIGURATION_REFUSED.set(bool(problem))
        RESTART_DUE.set(bool(restart_keys))
        for tell in self.told:
            tell()
