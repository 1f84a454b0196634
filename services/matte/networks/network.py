"""The one interface of matting networks."""

from dataclasses import dataclass
from typing import Protocol

from imaging.values import Pixels
from services.matte.solving import Solved


@dataclass(frozen=True, slots=True)
class Matted:
    """What a network says of a picture."""

    alpha: Pixels
    """(height, width), uint8. Eight bits, as every answer has them: kept in more, a matte of forty
    megapixels would cost 160 MB.
    """
    solved: Solved | None = None
    """Both colours, where they were wanted and solved on the network's own device."""
    solve_ms: float = 0.0
    """What of the call that took."""


class Network(Protocol):
    """A loaded network. One call at a time, from any thread."""

    @property
    def device(self) -> str:
        """ "cpu", or "card"."""

    @property
    def solves(self) -> bool:
        """Whether it solves for colours itself, on its card; on the host that is the caller's work,
        who has threads for it.
        """

    def matte(self, rgb: Pixels, *, colors: bool) -> Matted:
        """The matte of a picture (height, width, 3), of the same size, from 1x1 up.

        With `colors` a network that `solves` answers foreground and background, too. Raises Fault
        ENGINE_CRASHED where the device fails.
        """

    def solve(self, rgb: Pixels, alpha: Pixels) -> Solved:
        """Foreground and background for a matte (height, width) that is there already; only where
        it `solves`.
        """

    def close(self) -> None:
        """Give its memory back."""
