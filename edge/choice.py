"""Which model serves a request that names none."""

from collections.abc import Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from edge.errors import bad_field
from edge.roster import Listing

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Choice:
    """The configured one, or the only one there is of a kind."""

    kind: "models_pb2.ModelKind.ValueType"
    default: str | None
    listing: Listing

    async def of(self, named: str | None, param: str = "model") -> str:
        """The model of a request that names `named`, in the field `param`. Raises Fault."""
        return named or self.default or only_of(self.kind, await self.listing(), param)


def only_of(
    kind: "models_pb2.ModelKind.ValueType",
    models: Sequence[models_pb2.Model],
    param: str,
) -> str:
    """The name of the only model of a kind, or of the family that all are twins of.

    Raises Fault when there is none, or something to choose.
    """
    fitting = [model for model in models if model.kind == kind]
    if not fitting:
        word = models_pb2.ModelKind.Name(kind).removeprefix("MODEL_KIND_").lower()
        raise Fault(Reason.MODEL_NOT_FOUND, f"This house has no model of kind {word}.")
    families = {model.family for model in fitting}
    if len(fitting) == 1:
        return fitting[0].key
    if len(families) == 1 and (family := families.pop()):
        return family
    names = ", ".join(sorted(model.key for model in fitting)[:_MOST_NAMED])
    raise bad_field(param, f"`{param}` is missing, and there are several to choose from: {names}.")
