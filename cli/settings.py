"""`--set NAME=VALUE`: settings of a model for its next load, and the service that takes them."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from chassis.channel import open_channel
from cli.console import Refused, printable
from cli.dial import Dialled, answered
from cli.known import models_of, not_found
from cohabit.models.v1 import models_pb2, models_pb2_grpc

if TYPE_CHECKING:
    from cohabit.models.v1.models_pb2_grpc import ModelServiceAsyncStub

_OVERRIDE_S = 30.0

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting for this load, e.g. context_tokens=1024; may be repeated. It replaces "
        "former ones, and lasts until the service restarts.",
    ),
]


def settings_of(written: Sequence[str]) -> dict[str, str]:
    """What was written, by name; the values as JSON. Raises Refused."""
    found: dict[str, str] = {}
    for item in written:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise Refused(f"'{printable(item)}' is no setting; write NAME=VALUE.")
        if name in found:
            raise Refused(f"'{printable(name)}' is set twice.")
        found[name] = _as_json(value)
    return found


def _as_json(value: str) -> str:
    """A word that is not JSON is meant as a word."""
    try:
        json.loads(value)
    except ValueError:
        return json.dumps(value)
    return value


@asynccontextmanager
async def host_of(house: Dialled, model: str) -> AsyncIterator["tuple[str, ModelServiceAsyncStub]"]:
    """The service that hosts a model, by name and dialled. Raises Refused."""
    there_are = await models_of(house)
    service = next((one.service for one in there_are if one.key == model), "")
    if not service:
        raise Refused(not_found(model, there_are))
    async with open_channel(house.address_of(service)) as channel:
        yield service, models_pb2_grpc.ModelServiceStub(channel)


async def override(house: Dialled, model: str, settings: Mapping[str, str]) -> None:
    """Have the model's next load take `settings`. Raises Refused."""
    request = models_pb2.OverrideModelRequest(key=model, overrides=settings)
    async with host_of(house, model) as (service, stub):
        with answered(service):
            await stub.OverrideModel(request, timeout=_OVERRIDE_S)
