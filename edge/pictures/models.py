"""Which model paints: the one that is named, the configured one, or the only one there is."""

from collections.abc import Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from edge.choice import Choice
from edge.keys.caller import Caller
from edge.roster import Roster

_LOOKS = "image"
"""Among a model's input modalities: it edits by looking at pictures."""


@dataclass(frozen=True, slots=True)
class PaintingModels:
    """The models of a route."""

    choice: Choice
    roster: Roster

    async def named(self, wish: str, caller: Caller) -> str:
        """The name of the model to ask. Raises Fault."""
        return await self.choice.of(wish, caller)

    async def behind(self, name: str, caller: Caller) -> tuple[models_pb2.Model, ...]:
        """The models that may serve it; none when it is not known. Raises Fault for others."""
        behind = await self.roster.behind(name, caller)
        self.choice.check(behind)
        return behind


def edits(behind: Sequence[models_pb2.Model]) -> bool:
    """Whether these models edit by looking at pictures."""
    return bool(behind) and all(_LOOKS in model.capabilities.input_modalities for model in behind)


def check_looks(behind: Sequence[models_pb2.Model], param: str) -> None:
    """Raises Fault, its `param` the pictures, where they would wake models that cannot look."""
    if behind and not edits(behind):
        raise Fault(
            Reason.MODALITY_UNSUPPORTED,
            f"The model `{behind[0].key}` does not look at pictures; it can start from one, and "
            "paint over it within a mask.",
            metadata={"param": param},
        )
