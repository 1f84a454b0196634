"""Which matting network serves a request that names none."""

from collections.abc import Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from edge.errors import bad_field
from edge.roster import Listing, by_name

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Choice:
    """The configured one, or the only one there is."""

    default: str | None
    listing: Listing

    async def of(self, named: str | None) -> str:
        """The model of a request that names `named`. Raises Fault."""
        return named or self.default or only_matte(await self.listing())


def only_matte(models: Sequence[models_pb2.Model]) -> str:
    """The name of the only network, or of the one family that all are twins of. Raises Fault."""
    mattes = [model for model in models if model.kind == models_pb2.MODEL_KIND_MATTE]
    if not mattes:
        message = "There is no matting network in this house; configure one under `matte.models`."
        raise Fault(Reason.MODEL_NOT_FOUND, message)
    shared = {model.family for model in mattes}
    if len(mattes) == 1:
        return mattes[0].key
    if len(shared) == 1 and (family := shared.pop()) and family in by_name(models):
        return family
    names = ", ".join(sorted(model.key for model in mattes)[:_MOST_NAMED])
    raise bad_field("model", f"`model` is missing, and there are several to choose from: {names}.")
