"""Whether anything is left of requests that are over, in a house in which nobody is served."""

import asyncio
from collections.abc import Iterable

import grpc

from chassis.channel import open_channel
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc

_ANSWER_S = 5.0
_POLL_S = 0.02


async def left_after(
    within_s: float, scheduler: str, broker: str, llm: str, writers: Iterable[str]
) -> list[str]:
    """What is still there after `within_s`, a sentence each; none: the house rests.

    Takes the gRPC targets of its services, and the models that write.
    """
    models = tuple(writers)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while left := [*await _of_scheduler(scheduler, broker), *await _of_engines(llm, models)]:
        if loop.time() > deadline_s:
            break
        await asyncio.sleep(_POLL_S)
    return left


async def _of_scheduler(scheduler: str, broker: str) -> list[str]:
    async with open_channel(scheduler) as channel:
        stub: scheduler_pb2_grpc.SchedulerServiceAsyncStub
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        told = await stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=_ANSWER_S)
        listed = await stub.ListModels(scheduler_pb2.ListModelsRequest(), timeout=_ANSWER_S)
    waiting = sum(tier.waiting for tier in told.status.tiers)
    at_engines = sum(len(i.running_permit_ids) for model in listed.models for i in model.instances)
    counted = {
        "permits in use": told.status.permits_in_use,
        "requests that run": len(told.status.running),
        "requests that wait": waiting,
        "permits at engines": at_engines,
        "leases of requests": len(await _leases(broker) - _of_models(listed.models)),
    }
    return [f"{count} {what}" for what, count in counted.items() if count]


def _of_models(models: Iterable[models_pb2.Model]) -> set[str]:
    return {instance.lease_id for model in models for instance in model.instances}


async def _leases(broker: str) -> set[str]:
    async with open_channel(broker) as channel:
        stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(channel)
        told = await stub.ListLeases(broker_pb2.ListLeasesRequest(), timeout=_ANSWER_S)
    return {lease.lease_id for lease in told.leases}


async def _of_engines(llm: str, models: tuple[str, ...]) -> list[str]:
    left = []
    async with open_channel(llm) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub
        stub = llm_pb2_grpc.LanguageModelServiceStub(channel)
        for model in models:
            asked = llm_pb2.GetOccupancyRequest(model=model)
            try:
                held = await stub.GetOccupancy(asked, timeout=_ANSWER_S)
            except grpc.aio.AioRpcError as error:  # its engine is on its way out
                left.append(f"{model} does not say: {error.details()}")
                continue
            counted = {
                "places": held.running + held.waiting + held.parked,
                "cells": held.used_cells - held.idle_cells,
                "sequences": held.sequences - held.free_sequences - held.idle_prefixes,
            }
            left += [f"{count} {what} of {model}" for what, count in counted.items() if count]
    return left
