"""What came of a painting, taken in message by message. Pure; the words for it are `response`'s."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cohabit.diffusion.v1 import diffusion_pb2 as pb

Started = pb.GenerateResponse.Started
Image = pb.GenerateResponse.Image


@dataclass(slots=True)
class Painted:
    """One picture: one call of the engine, from its start to its end."""

    queue_wait_ms: int = 0
    started: Started = field(default_factory=Started)
    image: Image | None = None
    finish: pb.Finish | None = None

    def take(self, message: pb.GenerateResponse) -> None:
        """Take one message of the engine in."""
        match message.WhichOneof("event"):
            case "started":
                self.started = message.started
            case "image":
                self.image = message.image
            case "finish":
                self.finish = message.finish

    @property
    def done(self) -> bool:
        """The picture is there, and nothing comes after it."""
        return self.image is not None and self.finish is not None


class Partials:
    """Chooses among previews: `count` at most, evenly over the steps, each its own first."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._told = 0

    def take(self, step: int, steps: int) -> int | None:
        """The index to tell a preview after `step` of `steps` with; None: it is not told."""
        due = step * (self._count + 1) // max(1, steps)
        if not self._told < min(due, self._count):
            return None
        self._told += 1
        return self._told - 1


def spent(pictures: Sequence[Painted], name: str) -> float:
    """Milliseconds of one kind, over all pictures."""
    told = (one.finish.timings for one in pictures if one.finish is not None)
    return round(sum(float(getattr(timings, name)) for timings in told), 3)
