"""What the services say of themselves at this moment: asked side by side, each with a deadline.

Who does not answer is noted and the rest is known all the same. How it is shown is not said here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message

from chassis.channel import open_channel
from chassis.status import fault_of
from cli import house
from cli.health import DOWN, Health, all_health
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc

if TYPE_CHECKING:
    from cohabit.broker.v1.broker_pb2_grpc import BrokerServiceAsyncStub
    from cohabit.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceAsyncStub

_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What the owners said; None where one did not answer, `silent` says why."""

    services: list[Health]
    scheduler: scheduler_pb2.Status | None
    models: list[Any] | None
    devices: list[broker_pb2.DeviceMemory] | None
    leases: list[broker_pb2.Lease] | None
    silent: list[str]

    @property
    def well(self) -> bool:
        """Whether everything answers and serves, and no model has failed."""
        failed = any(model.state == models_pb2.MODEL_STATE_FAILED for model in self.models or ())
        return not self.silent and not failed and all(one.serving for one in self.services)

    @property
    def nothing_runs(self) -> bool:
        """Whether there is no service at all where the configuration says they are."""
        return all(health.detail == DOWN for health in self.services)


async def ask(whole: house.Whole) -> Answers:
    """Ask everyone, each for at most a few seconds."""
    addresses = whole.addresses
    silent: list[str] = []

    async def said(peer: str, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            silent.append(fault_of(error, peer).message)
            return None

    async with (
        open_channel(addresses["scheduler"]) as to_scheduler,
        open_channel(addresses["broker"]) as to_broker,
    ):
        scheduler: SchedulerServiceAsyncStub = scheduler_pb2_grpc.SchedulerServiceStub(to_scheduler)
        broker: BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(to_broker)
        services, state, models, memory, leases = await asyncio.gather(
            all_health(addresses, whole.edge_url),
            said(
                "scheduler",
                lambda: scheduler.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=_TIMEOUT_S),
            ),
            said(
                "scheduler",
                lambda: scheduler.ListModels(scheduler_pb2.ListModelsRequest(), timeout=_TIMEOUT_S),
            ),
            said(
                "broker",
                lambda: broker.GetDeviceMemory(
                    broker_pb2.GetDeviceMemoryRequest(), timeout=_TIMEOUT_S
                ),
            ),
            said(
                "broker",
                lambda: broker.ListLeases(broker_pb2.ListLeasesRequest(), timeout=_TIMEOUT_S),
            ),
        )
    return Answers(
        services,
        state.status if state else None,
        list(models.models) if models else None,
        list(memory.devices) if memory else None,
        list(leases.leases) if leases else None,
        list(dict.fromkeys(silent)),
    )


def as_json(answers: Answers) -> str:
    """Everything, for scripts; null where nobody answered."""

    def listed(messages: list[Any] | None) -> list[Any] | None:
        return None if messages is None else [plain(message) for message in messages]

    state = answers.scheduler
    return json.dumps(
        {
            "ok": answers.well,
            "services": [
                {
                    "name": health.name,
                    "address": health.address,
                    "serving": health.serving,
                    "detail": health.detail,
                }
                for health in answers.services
            ],
            "scheduler": None if state is None else plain(state),
            "models": listed(answers.models),
            "devices": listed(answers.devices),
            "leases": listed(answers.leases),
            "problems": answers.silent,
        },
        indent=2,
    )


def plain(message: Message) -> dict[str, Any]:
    """A message as plain values, every field present: numbers stay numbers, enums become names.

    (protobuf's own JSON writes 64-bit numbers as strings, which no script wants to compare.)
    """
    return {field.name: _value(field, getattr(message, field.name)) for field in _fields(message)}


def _fields(message: Message) -> list[Any]:
    present = []
    for field in message.DESCRIPTOR.fields:
        one = field.message_type is not None and not field.is_repeated
        if not one or message.HasField(field.name):
            present.append(field)
    return present


def _value(field: Any, value: Any) -> Any:
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    return value
