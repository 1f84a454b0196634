"""Which layers of a model go on the card. Pure: sizes and the device in, a number and why out.

 1. Without a card there is nothing to place.
 2. A number, or `all`, is what is done: whether it fits is the broker's to say.
 3. `auto` takes the whole model when it fits beside what is lent to nobody. It counts what the
    card has, not what is free on it now: making room is the scheduler's work.
 4. Otherwise none: a model split by guesswork is slow on both sides, so a part is placed only when
    somebody names the number.

What the engine then finds is in `engine_llama`; how large a model is, in `gguf_meta`.
"""

from dataclasses import dataclass
from typing import Literal

from services.llm.engine import ALL_LAYERS

WantedLayers = int | Literal["auto", "all"]


@dataclass(frozen=True, slots=True)
class Device:
    """What a house lends memory of, as far as placement cares."""

    description: str = ""
    """As its driver calls it; empty: the host's own memory."""
    lendable_mib: int = 0
    """Of all there is, what a lease could ever be granted."""

    @property
    def is_card(self) -> bool:
        """Whether layers can be put there at all."""
        return bool(self.description)


HOST = Device()


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers go on the card, and why, in one sentence."""

    count: int
    why: str

    @property
    def wanted(self) -> bool:
        """Whether the card is needed at all."""
        return self.count != 0


ON_CPU = Layers(0, "There is no card here, so the model computes on the CPU.")


def place(wanted: WantedLayers, device: Device, whole_mib: int) -> Layers:
    """The layers for a model that needs `whole_mib` of the card when all of it is there."""
    if wanted == 0:
        return Layers(0, "The configuration keeps it on the CPU (gpu_layers: 0).")
    if wanted == "all":
        return Layers(ALL_LAYERS, "The configuration wants every layer on the card.")
    if wanted != "auto":
        return Layers(wanted, f"The configuration wants {wanted} layers on the card.")
    if not device.is_card:  # 1
        return ON_CPU
    room = f"{whole_mib} MiB of the {device.lendable_mib} MiB that {device.description} can lend"
    if whole_mib <= device.lendable_mib:  # 3
        return Layers(ALL_LAYERS, f"All of it fits: {room}.")
    return Layers(0, f"It does not fit: it needs {room}; name a number of gpu_layers for a part.")
