"""How the edge itself stands: whether it is about to stop, and how many of its workers run."""

from dataclasses import dataclass


@dataclass(slots=True)
class Standing:
    """Read by health, readiness and status; kept by whoever runs the process."""

    draining: bool = False
    """Told to stop: what runs is finished, and balancers are to send nothing new."""
    workers: int = 1
    """Worker processes there should be."""
    up: int = 1
    """Those that take requests."""

    @property
    def amiss(self) -> str:
        """One sentence for people; empty when all is as it should be."""
        if self.draining:
            return "The edge has been told to stop; what runs is being finished."
        if self.up < self.workers:
            return f"Of the edge's {self.workers} worker processes {self.up} take requests."
        return ""
