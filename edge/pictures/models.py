"""Which model paints: the one that is named, the configured one, or the only one there is."""

from collections.abc import Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from edge.catalog import Catalog
from edge.errors import bad_field
from edge.pictures.service import SERVICE
from edge.roster import Roster

_LOOKS = "image"
"""Among a model's input modalities: it edits by looking at pictures."""


@dataclass(frozen=True, slots=True)
class PaintingModels:
    """The models of a route."""

    catalog: Catalog
    roster: Roster
    otherwise: str = ""
    """For requests that name none; empty: the only one there is."""

    async def named(self, wish: str) -> str:
        """The name of the model to ask. Raises Fault."""
        if wish or self.otherwise:
            return wish or self.otherwise
        known = [model.key for model in await self.catalog.listed() if _paints(model)]
        if len(known) != 1:
            raise bad_field(
                "model", f"`model` is missing: there are {len(known)} that paint to choose from."
            )
        return known[0]

    async def behind(self, name: str) -> tuple[models_pb2.Model, ...]:
        """The models that may serve it; none when it is not known. Raises Fault for others."""
        behind = await self.roster.behind(name)
        for model in behind:
            if not _paints(model):
                raise Fault(
                    Reason.MODALITY_UNSUPPORTED,
                    f"The model `{model.key}` {_what(model)}; pictures are painted by models of "
                    "kind diffusion, which GET /v1/models lists with the others.",
                    metadata={"param": "model"},
                )
        return behind


def edits(behind: Sequence[models_pb2.Model]) -> bool:
    """Whether these models edit by looking at pictures."""
    return bool(behind) and all(_LOOKS in model.capabilities.input_modalities for model in behind)


def _paints(model: models_pb2.Model) -> bool:
    return model.kind == models_pb2.MODEL_KIND_DIFFUSION and model.service == SERVICE


def _what(model: models_pb2.Model) -> str:
    if model.kind == models_pb2.MODEL_KIND_DIFFUSION:
        return f"is hosted by the service {model.service}, which only pretends"
    kind = models_pb2.ModelKind.Name(model.kind).removeprefix("MODEL_KIND_").lower()
    return f"is of kind {kind}"
