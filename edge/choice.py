"""Which model serves a request that names none; and whether one is what its route is for."""

from collections.abc import Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from edge.catalog import Catalog
from edge.errors import bad_field
from edge.keys.caller import Caller

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Choice:
    """The configured one, or the only one there is of a kind."""

    kind: "models_pb2.ModelKind.ValueType"
    service: str
    """That hosts them: others may only pretend to have models of the kind."""
    default: str | None
    catalog: Catalog

    async def of(self, named: str | None, caller: Caller, param: str = "model") -> str:
        """The model of a request that names `named`, in the field `param`. Raises Fault.

        Whether a name is for this caller says who looks it up (`Roster.behind`).
        """
        return named or self.default or await self._only(caller, param)

    def check(self, behind: Sequence[models_pb2.Model], param: str = "model") -> None:
        """Raises Fault when a request would wake a model that cannot answer it."""
        for model in behind:
            if not self._fits(model):
                what = f"of kind {kind_word(model.kind)}, hosted by the service {model.service}"
                wanted = f"models of kind {kind_word(self.kind)} of the service {self.service}"
                message = f"The model `{model.key}` is {what}; this route is for {wanted}."
                raise bad_field(param, message, Reason.MODALITY_UNSUPPORTED)

    async def _only(self, caller: Caller, param: str) -> str:
        listed = await self.catalog.listed()
        fitting = [
            model for model in listed if self._fits(model) and caller.may_ask(model.key, (model,))
        ]
        if not fitting and not await self.catalog.heard(self.service):
            message = f"The {self.service} service has not told its models yet; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        return _only_of(fitting, kind_word(self.kind), param)

    def _fits(self, model: models_pb2.Model) -> bool:
        return (model.kind, model.service) == (self.kind, self.service)


def kind_word(kind: "models_pb2.ModelKind.ValueType") -> str:
    """A kind of models, in a word."""
    return models_pb2.ModelKind.Name(kind).removeprefix("MODEL_KIND_").lower()


def _only_of(fitting: Sequence[models_pb2.Model], kind: str, param: str) -> str:
    """The name of the only model, or of the family that all are twins of.

    Raises Fault when there is none, or something to choose.
    """
    if not fitting:
        raise Fault(Reason.MODEL_NOT_FOUND, f"This house has no model of kind {kind}.")
    families = {model.family for model in fitting}
    if len(fitting) == 1:
        return fitting[0].key
    if len(families) == 1 and (family := families.pop()):
        return family
    names = ", ".join(sorted(model.key for model in fitting)[:_MOST_NAMED])
    raise bad_field(param, f"`{param}` is missing, and there are several to choose from: {names}.")
