"""Which layers of a model go on the card. Pure: sizes and the device in, a number and why out.

Before the load, `place` decides by what the house has:

 1. A number, or `all`, is what is done: whether it fits is the broker's to say.
 2. Without a card there is nothing to place.
 3. `auto` takes the whole model when it fits beside what is lent to nobody. It counts what the
    card has, not what is free on it now: making room is the scheduler's work.
 4. Otherwise none: a model split by guesswork is slow on both sides, so a part is placed only when
    somebody names the number.

In the engine, `settle` holds that against what its native library has found. A library that finds
no card loads on the CPU without a word, at a fraction of the pace, so that is refused unless the
configuration allows it. How large a model is, `gguf_meta` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chassis.errors import Fault, Reason
from hosting.house_device import Device
from services.llm.engine import ALL_LAYERS

WantedLayers = int | Literal["auto", "all"]


@dataclass(frozen=True, slots=True)
class Layers:
    """How many layers go on the card, and why, in one sentence."""

    count: int
    why: str


ON_CPU = Layers(0, "The house lends no card's memory, so the model computes on the CPU.")


def place(wanted: WantedLayers, device: Device, whole_mib: int) -> Layers:
    """The layers for a model that needs `whole_mib` of the card when all of it is there."""
    if wanted == 0:  # 1
        return Layers(0, "The configuration keeps it on the CPU (gpu_layers: 0).")
    if wanted == "all":
        return Layers(ALL_LAYERS, "The configuration wants every layer on the card.")
    if wanted != "auto":
        return Layers(wanted, f"The configuration wants {wanted} layers on the card.")
    if not device.card:  # 2
        return ON_CPU
    room = f"{whole_mib} MiB, and {device.card} can lend {device.lendable_mib} MiB"
    if whole_mib <= device.lendable_mib:  # 3
        return Layers(ALL_LAYERS, f"All of it fits on the card: it needs {room}.")
    return Layers(0, f"It does not fit on the card: it needs {room}; gpu_layers can name a part.")


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an engine computes, in the words of cohabit.models.v1.Placement."""

    gpu_layers: int
    layers: int
    """All there are: the repeating ones, and the output."""
    device_name: str = ""
    degraded: bool = False
    why: str = ""

    @property
    def kind(self) -> str:
        """gpu, partial or cpu."""
        if not self.gpu_layers:
            return "cpu"
        return "gpu" if self.gpu_layers == self.layers else "partial"


def settle(
    wanted: Layers, layers: int, cards: Sequence[str], *, allow_cpu_fallback: bool
) -> Placed:
    """Where a model of so many `layers` goes in an engine that finds these `cards`.

    Raises Fault MODEL_FAILED where it is wanted on a card and there is none to be had.
    """
    if not wanted.count:
        return Placed(0, layers, why=wanted.why)
    if cards:
        count = layers if wanted.count == ALL_LAYERS else min(wanted.count, layers)
        return Placed(count, layers, cards[0], why=wanted.why)
    if not allow_cpu_fallback:
        raise Fault(
            Reason.MODEL_FAILED,
            "The model is meant for a card, but the engine finds none: install llama-cpp-python "
            "built for the card, see that its driver runs, or set gpu_layers: 0 or "
            "allow_cpu_fallback: true.",
        )
    fallen = "It was meant for a card, but the engine finds none; allow_cpu_fallback lets it run."
    return Placed(0, layers, degraded=True, why=fallen)
