"""A model named by a person: which there are when there is none of that name; tiers by name."""

import difflib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Annotated

import grpc
import typer

from chassis.errors import Reason
from chassis.status import fault_of
from cli.console import Refused, printable
from cli.dial import TIMEOUT_S, Dialled, answered, sentence
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_MOST_NAMES = 60

NameArgument = Annotated[str, typer.Argument(help="A model's key, or a family.", metavar="MODEL")]
KeyArgument = Annotated[str, typer.Argument(help="A model's key.", metavar="MODEL")]


class TierName(StrEnum):
    """Tiers as a person types them."""

    PAID = "paid"
    SUB = "sub"
    FREE = "free"
    BACKGROUND = "background"


TierOption = Annotated[
    TierName | None, typer.Option("--tier", help="How urgent; the scheduler's default otherwise.")
]


def tier_number(name: TierName | None) -> common_pb2.Tier.ValueType:
    """The tier on the wire; unspecified when none is named."""
    return common_pb2.Tier.Value(f"TIER_{name.name}" if name else "TIER_UNSPECIFIED")


@asynccontextmanager
async def asked_for(house: Dialled, model: str) -> AsyncIterator[None]:
    """Turns a scheduler's call about `model` that fails within into Refused."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if fault_of(error, "scheduler").reason is not Reason.MODEL_NOT_FOUND:
            raise Refused(sentence(error, "scheduler")) from None
        raise Refused(not_found(model, await models_of(house))) from None
    except TimeoutError as error:
        raise Refused(sentence(error, "scheduler")) from None


async def models_of(house: Dialled) -> Sequence[models_pb2.Model]:
    """All models. Raises Refused."""
    with answered("scheduler"):
        listed = await house.scheduler.ListModels(pb.ListModelsRequest(), timeout=TIMEOUT_S)
    return listed.models


def not_found(model: str, there_are: Sequence[models_pb2.Model]) -> str:
    """Why the scheduler does not know `model`: there is none, or it is a family of several."""
    twins = [printable(one.key) for one in there_are if one.family == model]
    if twins:
        return f"'{printable(model)}' is a family; name one of its models: {', '.join(twins)}."
    return no_such(model, {name for one in there_are for name in (one.key, one.family) if name})


def no_such(model: str, names: Iterable[str]) -> str:
    """That there is no `model`, and which there are: those that look like it first."""
    known = sorted(names)
    if not known:
        return f"There is no model '{printable(model)}': the house has none."
    close = difflib.get_close_matches(model, known, n=3, cutoff=0.5)
    ordered = [*close, *(name for name in known if name not in close)]
    more = f", and {len(ordered) - _MOST_NAMES} more" if len(ordered) > _MOST_NAMES else ""
    listed = ", ".join(map(printable, ordered[:_MOST_NAMES])) + more
    return f"There is no model '{printable(model)}'; there are: {listed}."
