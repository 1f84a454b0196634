"""What makes one picture, blocking, and nothing else: the protocol of native libraries.

Batches, caches, files, cancels and events are made around it, the same for all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from imaging.values import Pixels
from services.diffusion.core.phases import Phase
from services.diffusion.values import Settings


@dataclass(frozen=True, slots=True)
class Inputs:
    """The pictures that came with a request, decoded and of the size that is needed."""

    init: Pixels | None = None
    """(height, width, 3), of the picture's size."""
    mask: Pixels | None = None
    """(height, width), of the picture's size; 255 is painted, 0 is kept."""
    references: tuple[Pixels, ...] = ()
    hashes: tuple[str, ...] = ()
    """Of the files they were: init, mask, references, each with its place."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """One picture to make."""

    settings: Settings
    seed: int
    inputs: Inputs = field(default_factory=Inputs)


@dataclass(frozen=True, slots=True)
class Painted:
    """A finished picture."""

    pixels: Pixels
    condition_s: float
    denoise_s: float
    decode_s: float
    steps: int
    """That were run."""


class Watcher(Protocol):
    """Hears how a picture comes along, on the painter's thread."""

    def moved(self, phase: Phase, done: int, total: int) -> None:
        """A phase began, or got on."""

    def preview(self, step: int, pixels: Pixels) -> None:
        """What is there so far."""


class Painter(Protocol):
    """A model that makes pictures. All calls come from one and the same thread, and block."""

    @property
    def library(self) -> str:
        """What computes, in which build: pictures of two of them are never the same."""

    @property
    def device(self) -> str:
        """The card as its driver names it; empty on the CPU. Known after `load`."""

    def load(self, progress: Callable[[float], None]) -> None:
        """Load the weights and prove that they fit together. Raises Fault MODEL_FAILED.

        `progress` gets 0 to 1.
        """

    def paint(self, sketch: Sketch, watcher: Watcher) -> Painted:
        """Make the picture. Raises Fault MODEL_FAILED when the library gives none."""

    def close(self) -> None:
        """Free the weights."""
