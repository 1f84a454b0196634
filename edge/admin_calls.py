"""What the admin routes have others do: the scheduler loads and unloads, a model's service changes
what its next load takes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from chassis.channel import call_metadata
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2
from edge.catalog import Catalog
from edge.errors import bad_field, model_not_found
from edge.house_views import SwapBody, UnloadBody

if TYPE_CHECKING:
    from cohabit.models.v1.models_pb2_grpc import ModelServiceAsyncStub

_OVERRIDE_S = 30.0
_MOST_DRAIN_S = 24 * 3600.0
_AFTER_DRAIN_S = 120.0
"""For the engine to end, and the device to show the memory free."""
_USUAL_DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class AdminCalls:
    """Calls that change something; `max_s` bounds those that wait for a load."""

    catalog: Catalog
    addresses: Mapping[str, str]
    """Of the model services, by name."""
    services: "Channels[ModelServiceAsyncStub]"
    max_s: float

    async def override(self, name: str, values: Mapping[str, Any]) -> None:
        """Settings for the model's next load, in place of former ones. Raises Fault."""
        service, address = await self._service_of(name)
        request = models_pb2.OverrideModelRequest(key=name, overrides=_as_json(values))
        async with self.services.to(address) as stub:
            try:
                await stub.OverrideModel(request, timeout=_OVERRIDE_S, metadata=call_metadata())
            except grpc.aio.AioRpcError as error:
                raise fault_of(error, service) from None

    async def load(self, name: str) -> None:
        """Have the model on the device, whoever has to leave for it. Raises Fault."""
        request = scheduler_pb2.LoadModelRequest(model=name)
        call = self.catalog.scheduler.LoadModel(
            request, timeout=self.max_s, metadata=call_metadata()
        )
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None
        finally:
            call.cancel()

    async def unload(self, name: str, body: UnloadBody) -> None:
        """Drain the model and have its memory back. Raises Fault."""
        drain_ms = _drain_ms(body.drain_s)
        request = scheduler_pb2.UnloadModelRequest(model=name, drain_ms=drain_ms, force=body.force)
        within_s = (drain_ms / 1000 or _USUAL_DRAIN_S) + _AFTER_DRAIN_S
        try:
            await self.catalog.scheduler.UnloadModel(
                request, timeout=within_s, metadata=call_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None

    async def swap(self, name: str, body: SwapBody) -> None:
        """Another file for the model; who leaves early gives it up. Raises Fault."""
        service, address = await self._service_of(name)
        request = models_pb2.SwapModelRequest(
            key=name,
            path=body.path,
            overrides=_as_json(body.overrides),
            drain_ms=_drain_ms(body.drain_s),
        )
        async with self.services.to(address) as stub:
            call = stub.SwapModel(request, timeout=self.max_s, metadata=call_metadata())
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                raise fault_of(error, service) from None
            finally:
                call.cancel()

    async def _service_of(self, name: str) -> tuple[str, str]:
        for model in await self.catalog.everything():
            if model.key == name and (address := self.addresses.get(model.service)):
                return model.service, address
            if model.key == name:
                message = f"The service of model `{name}` is not known here."
                raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        raise model_not_found(name)


def services_of(addresses: Mapping[str, str]) -> "Channels[ModelServiceAsyncStub]":
    """Connections to the model services."""
    return Channels(len(addresses), models_pb2_grpc.ModelServiceStub)


def _as_json(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in values.items()}


def _drain_ms(drain_s: float | None) -> int:
    """0 on the wire: the service's own idea."""
    if drain_s is None:
        return 0
    if not 0 <= drain_s <= _MOST_DRAIN_S:
        raise bad_field("drain_s", f"`drain_s` must be from 0 to {_MOST_DRAIN_S:g} seconds.")
    return max(1, round(drain_s * 1000))
