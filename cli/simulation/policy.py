"""What a replay demands of whoever decides: the events of the scheduler's core.

`SchedulerCore` is one; `fifo.Fifo` is its rival.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from services.scheduler.core.values import Effect, ModelFacts, Request


class Policy(Protocol):
    """Events in, effects out; times in ms."""

    @property
    def next_alarm_ms(self) -> int | None:
        """When `tick` should be called next."""

    @property
    def in_use(self) -> int:
        """Permits that are out."""

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed."""

    def snapshot(
        self,
        now_ms: int,
        facts: Iterable[ModelFacts],
        running: Mapping[str, tuple[str, str]],
        known: set[str],
    ) -> list[Effect]:
        """All models there are."""

    def catalogue_complete(self, now_ms: int) -> list[Effect]:
        """There are no others."""

    def arrive(self, now_ms: int, request: Request) -> list[Effect]:
        """A request asks to run."""

    def leave(self, now_ms: int, permit_id: str) -> list[Effect]:
        """Its caller is gone."""

    def permit_started(
        self, now_ms: int, permit_id: str, model: str, instance_id: str
    ) -> list[Effect]:
        """An engine took it in."""

    def permit_over(self, now_ms: int, permit_id: str) -> list[Effect]:
        """Its engine is done with it."""

    def permit_runs(self, permit_id: str) -> list[Effect]:
        """Its engine works on it."""

    def model_changed(self, now_ms: int, facts: ModelFacts) -> list[Effect]:
        """A model is something else now."""

    def lease_granted(self, now_ms: int, key: str, lease_id: str) -> list[Effect]:
        """A model has its memory."""

    def lease_denied(
        self, now_ms: int, key: str, *, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """It has not."""

    def transient_granted(
        self, now_ms: int, permit_id: str, lease_id: str, mib: int
    ) -> list[Effect]:
        """A request has the memory for its peak."""

    def transient_denied(
        self, now_ms: int, permit_id: str, *, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """It has not."""

    def load_ended(
        self, now_ms: int, key: str, failure: str | None, retry_after_ms: int = 0
    ) -> list[Effect]:
        """A load is over."""

    def unload_ended(self, now_ms: int, key: str) -> list[Effect]:
        """An unload is over."""
