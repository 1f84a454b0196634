"""Whether the services of the house answer: grpc.health.v1 of each, `/readyz` of the edge."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.backoff import Backoff
from chassis.channel import open_channel
from cli.console import printable

DOWN = "is down"
_POLL = Backoff(first_s=0.1, factor=1.3, most_s=1.0)


@dataclass(frozen=True, slots=True)
class Health:
    """One service as seen from here; `detail` says why when it is not `serving`."""

    name: str
    address: str
    serving: bool
    detail: str = ""


async def grpc_health(name: str, address: str, timeout_s: float = 2.0) -> Health:
    """Ask the service at a gRPC target."""
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            slow = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return Health(name, address, False, "does not answer in time" if slow else DOWN)
    serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    return Health(name, address, serving, "" if serving else "is not ready to serve")


async def edge_health(url: str, timeout_s: float = 2.0) -> Health:
    """Ask the edge whether it is ready."""
    # trust_env off: a proxy has no business between the launcher and its own edge.
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False) as client:
        try:
            answer = await client.get(f"{url}/readyz")
        except httpx.HTTPError as error:
            slow = isinstance(error, httpx.TimeoutException)
            return Health("edge", url, False, "does not answer in time" if slow else DOWN)
    ready = answer.status_code == httpx.codes.OK
    return Health("edge", url, ready, "" if ready else _why_not(answer))


def _why_not(answer: httpx.Response) -> str:
    """What an edge that is not ready says of it."""
    try:
        said = str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"answers {answer.status_code} at /readyz"
    return f"is not ready: {printable(said)}"


async def all_health(addresses: Mapping[str, str], edge_url: str) -> list[Health]:
    """The health of every service, asked side by side."""
    asked = [grpc_health(name, address) for name, address in addresses.items()]
    return list(await asyncio.gather(*asked, edge_health(edge_url)))


async def until_serving(
    addresses: Mapping[str, str], edge_url: str, deadline_s: float
) -> list[Health]:
    """Ask again until all serve or `deadline_s` is over; answers the last health seen."""
    end, asked = time.monotonic() + deadline_s, 0
    while True:
        seen = await all_health(addresses, edge_url)
        if all(health.serving for health in seen) or time.monotonic() >= end:
            return seen
        asked += 1
        await asyncio.sleep(_POLL.delay_s(asked))
