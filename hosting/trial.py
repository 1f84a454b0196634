"""A model's new description on trial: while it lasts, a load that fails is nobody's news but ours.

Whoever waits for the model must not be told that it failed, when the former description comes back
a moment later and serves them. Such a load is refused as MODEL_BUSY, which the scheduler takes as
nobody's fault: its waiters wait on. Who tries the model reads here why it failed.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chassis.errors import Fault, Reason

if TYPE_CHECKING:
    from hosting.hosted import Hosted


@dataclass(slots=True)
class Trial:
    """What became of the loads so far."""

    fault: Fault | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first failure."""

    def fail(self, fault: Fault) -> None:
        """A load has failed."""
        if self.fault is None:
            self.fault = fault
            self.over.set()


@contextmanager
def on_trial(hosted: "Hosted") -> Iterator[Trial]:
    """Loads that begin within the block are on trial. Raises Fault MODEL_BUSY: one at a time."""
    check_free(hosted)
    trial = hosted.trial = Trial()
    try:
        yield trial
    finally:
        hosted.trial = None


def check_free(hosted: "Hosted") -> None:
    """Raises Fault MODEL_BUSY while the model is on trial."""
    if hosted.trial is not None:
        raise Fault(
            Reason.MODEL_BUSY,
            f"Model '{hosted.spec.key}' is getting another file just now; try again shortly.",
            retry_after_s=1.0,
        )
