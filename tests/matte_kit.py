"""What tests of the matting service share: pictures, a service over a real engine, its clients."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from chassis.channel import open_channel
from chassis.server import Server, service_name
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc as rpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from hosting.host import ModelHost
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from imaging.values import Bounds
from services.matte.catalog import Ground, NetworkFile
from services.matte.clients import Scheduler
from services.matte.config import MatteConfig
from services.matte.host_work import HostWork
from services.matte.servicer import Defaults, MatteServicer
from tests.hosting_world import DEADLINE_S, Grants, broker_process

ROOT = Path(__file__).parents[1]
U2NETP = ROOT / "models" / "u2netp.onnx"
MAX_PX = 2_000_000

LOAD_S = 60.0
"""Of a load or a picture, on a busy machine that also has to compile the solver."""


def subject(width_px: int = 64, height_px: int = 48) -> np.ndarray[Any, Any]:
    """A bright disc on a dark ground."""
    ys, xs = np.mgrid[0:height_px, 0:width_px]
    rgb = np.full((height_px, width_px, 3), (30, 40, 50), np.uint8)
    radius = max(1, min(width_px, height_px) // 3)
    rgb[(xs - width_px // 2) ** 2 + (ys - height_px // 2) ** 2 <= radius**2] = (220, 180, 40)
    return rgb


def file_of(pixels: np.ndarray[Any, Any], kind: str = "PNG", **options: Any) -> bytes:
    out = BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def media(data: bytes, mime_type: str = "image/png") -> common_pb2.Media:
    return common_pb2.Media(data=data, mime_type=mime_type)


def pixels_of(answer: common_pb2.Media) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(BytesIO(answer.data)))


@dataclass(frozen=True, slots=True)
class Service:
    matte: "rpc.MatteServiceAsyncStub"
    models: "models_pb2_grpc.ModelServiceAsyncStub"
    grants: Grants
    host: ModelHost
    broker: str

    async def listed(self, key: str) -> models_pb2.Model:
        answer = await self.models.ListModels(models_pb2.ListModelsRequest(), timeout=DEADLINE_S)
        (model,) = (one for one in answer.models if one.key == key)
        return model

    async def load(self, key: str = "small") -> models_pb2.Instance:
        model = await self.listed(key)
        lease_id = await self._lease(key, model.footprint.resident_mib)
        call = self.models.LoadModel(models_pb2.LoadModelRequest(key=key, lease_id=lease_id))
        async with asyncio.timeout(LOAD_S):
            async for told in call:
                instance = told.instance
        self.grants.addresses[key] = instance.address
        return instance

    async def _lease(self, key: str, mib: int) -> str:
        request = broker_pb2.AcquireLeaseRequest(
            holder=f"matte/{key}",
            kind=broker_pb2.LEASE_KIND_RESIDENT,
            tier=common_pb2.TIER_PAID,
            preferred_mib=mib,
        )
        async with open_channel(self.broker) as channel:
            stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(
                channel
            )
            answer = await stub.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
        return str(answer.lease.lease_id)


def configured(**models: dict[str, Any]) -> MatteConfig:
    """A section of the configuration, with the small network by the name of "small"."""
    small = {"path": str(U2NETP), "threads": 1}
    return MatteConfig.model_validate(
        {"models": {"small": small} | models, "max_px": MAX_PX, "host_places": 1}
    )


@asynccontextmanager
async def service(folder: Path, own: MatteConfig) -> AsyncIterator[Service]:
    """The service as `__main__` wires it, in this process; its engines and broker are real."""
    (folder / "run").mkdir()
    home = EngineHome("matte", "services.matte.engine_main", folder / "run", "info")
    grants = Grants()  # type: ignore[abstract]
    scheduling = Server(["cohabit.scheduler.v1.SchedulerService"], drain_s=0)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(grants, scheduling.grpc)
    at = await scheduling.start(f"unix:{folder}/s.sock")
    async with broker_process(folder) as broker:
        leases, scheduler = LeaseBook(broker, "matte"), Scheduler(at)
        ground = Ground(folder, own.max_px, own.encoding)
        files = {key: NetworkFile(key, model, ground) for key, model in own.models.items()}
        host = ModelHost(home, files.values(), leases)
        work = HostWork(own.host_places, Bounds(max_px=own.max_px))
        server = Server([service_name(pb, "MatteService")], drain_s=0.2)
        for closing in (leases.close, scheduler.close, host.close):
            server.closing.push_async_callback(closing)
        server.closing.callback(work.close)
        servicer = MatteServicer(host, scheduler, work, Defaults(own.encoding, lambda: own.default))
        rpc.add_MatteServiceServicer_to_server(servicer, server.grpc)
        models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
        target = await server.start(f"unix:{folder}/matte.sock")
        try:
            async with open_channel(target) as channel:
                yield Service(
                    rpc.MatteServiceStub(channel),
                    models_pb2_grpc.ModelServiceStub(channel),
                    grants,
                    host,
                    broker,
                )
        finally:
            await server.stop()
            await scheduling.stop()
