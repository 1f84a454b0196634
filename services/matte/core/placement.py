"""Whether a network goes on the card. Pure: what is wanted, and what the house lends, in.

1. `cpu` is obeyed.
2. Without a card there is nothing to place.
3. `auto` takes the card when the network and the peak of its largest picture could be leased there
   on the empty card; a lease that could never be granted would keep the model from ever loading,
   and on the CPU it serves.
"""

from dataclasses import dataclass
from typing import Literal

Wanted = Literal["auto", "cpu"]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a network computes, and why, in one sentence."""

    on_card: bool
    why: str


def place(wanted: Wanted, card: str, lendable_mib: int, needed_mib: int) -> Placed:
    """For a network that needs `needed_mib` of `card` (empty: there is none) at its peak."""
    if wanted == "cpu":  # 1
        return Placed(on_card=False, why="The configuration keeps it on the CPU (device: cpu).")
    if not card:  # 2
        why = "The house lends no card's memory, so the network computes on the CPU."
        return Placed(on_card=False, why=why)
    room = f"{needed_mib} MiB at its peak, and {card} can lend {lendable_mib} MiB"
    if needed_mib <= lendable_mib:  # 3
        return Placed(on_card=True, why=f"It fits on the card: it needs {room}.")
    return Placed(on_card=False, why=f"It does not fit on the card: it needs {room}.")
