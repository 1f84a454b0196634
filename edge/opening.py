"""The edge's application as the configuration says, for whichever process serves it."""

from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp

from chassis.main import Context
from edge.app import open_app
from edge.config import EdgeConfig
from edge.keys.counting import Counting
from edge.responses.in_flight import InFlight
from edge.responses.shelf import Shelf
from edge.standing import Standing


def opened(
    context: Context[EdgeConfig],
    config: EdgeConfig,
    standing: Standing,
    shelf: Shelf | None = None,
    in_flight: InFlight | None = None,
    counting: Counting | None = None,
) -> AbstractAsyncContextManager[ASGIApp]:
    """Connected until the block ends. `config`: that of this process; the rest as `open_app`."""
    house, document = context.house, context.document
    services = {name: house.address_of(name) for name in document.model_services()}
    return open_app(
        config,
        house.address_of("scheduler"),
        services,
        house.address_of("broker"),
        house.address_of("jobs") if "jobs" in document.grpc_services() else "",
        standing=standing,
        shelf=shelf,
        in_flight=in_flight,
        counting=counting,
    )
