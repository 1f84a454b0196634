"""One service of the house beside the scheduler and the broker: whether there is one, dialled.

What goes wrong while it is asked becomes one sentence for people, in the words of the command.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType

import grpc

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cli.console import Refused, printable
from cli.dial import Dialled
from cli.known import models_of, not_found

_NAMED = re.compile(r"`([a-z_]+)[^`\s]*`")
"""A field of a request, with its parts, e.g. `loras[0].scale`."""
_TWICE = re.compile(r"(`[^`]+`) and \1")

Options = Mapping[str, str]
"""What the command calls a field of a request, by what its service calls it."""
_NONE: Options = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Service:
    """A service that a house may do without."""

    name: str
    does: str
    """What the house does with it, e.g. "paints"."""
    guide: str
    """Where its section is explained."""


@asynccontextmanager
async def reached(
    house: Dialled, service: Service, options: Options = _NONE
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to the service. Raises Refused, also for what fails within."""
    if service.name not in house.services:
        raise Refused(
            f"Nothing {service.does} in this house: its configuration has no `{service.name}` "
            f"section; add one as {service.guide} shows."
        )
    try:
        async with open_channel(house.address_of(service.name)) as channel:
            yield channel
    except grpc.aio.AioRpcError as error:
        raise Refused(sentence(fault_of(error, service.name), options)) from None
    except Fault as fault:
        raise Refused(sentence(fault, options)) from None
    except TimeoutError:
        raise Refused(
            f"The {service.name} service does not answer in time; see what is wrong with "
            "`cohabit status`."
        ) from None


async def check_model(house: Dialled, service: Service, model: str) -> None:
    """Raises Refused when there is no such model, or the service does not host it."""
    there_are = await models_of(house)
    ours = [one for one in there_are if one.service == service.name]
    if any(one.key == model for one in ours):
        return
    if any(one.key == model for one in there_are):
        names = ", ".join(sorted(printable(one.key) for one in ours)) or "none"
        raise Refused(f"'{model}' is no model that {service.does}; there are: {names}.")
    raise Refused(not_found(model, ours))


def sentence(fault: Fault, options: Options = _NONE) -> str:
    """Why a service said no; fields of its request as the command calls them."""

    def renamed(found: re.Match[str]) -> str:
        option = options.get(found[1])
        return f"`{option}`" if option else found[0]

    said = _TWICE.sub(r"\1", _NAMED.sub(renamed, fault.message))
    if fault.reason is Reason.SERVICE_UNAVAILABLE:
        said += " `cohabit status` says what is down; `cohabit up` starts the house."
    return printable(said)
