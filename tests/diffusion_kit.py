"""What tests of the diffusion engine share: a tiny model's spec, and its engine behind a socket."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chassis.channel import PERMIT_ID, open_channel
from chassis.server import Server
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc as rpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import Birth, EngineProcess
from services.diffusion import engine_main
from services.diffusion.core.peak import Growth, PeakProfile
from services.diffusion.engine import Defaults, EngineSpec, Placement, Sizes, as_json
from services.diffusion.loaded import LoadedModel
from tests.tiny_diffusion import TinyDiffusion

KEY = "tiny"
DEADLINE_S = 60.0
LEASED_MIB = 4096


def spec_of_tiny(made: TinyDiffusion, **fields: Any) -> EngineSpec:
    """64 x 64 in two steps; the small decoder, which can encode, too."""
    spec = EngineSpec(
        family="ovis-image",
        files={
            "diffusion_model": str(made.diffusion_model),
            "llm": str(made.llm),
            "taesd": str(made.taesd),
        },
        defaults=Defaults(steps=2, guidance=1.0, sampler="euler", width_px=64, height_px=64),
        sizes=Sizes(multiple_px=16, min_side_px=16, max_side_px=2048, max_px=1 << 20),
        placement=Placement(threads=1),
        peak=PeakProfile(8.0, Growth(8.0, 600.0), Growth(8.0, 700.0)),
        references=True,
        max_batch=4,
        restart_s=600.0,  # the engine is in the test's own process, which must not be renewed
    )
    return replace(spec, **fields)


def asking(prompt: str = "a cat", **fields: Any) -> pb.GenerateRequest:
    """A request of a seed, and of a lease that covers all."""
    base: dict[str, Any] = {
        "model": KEY,
        "seed": 1,
        "transient_lease_id": "lease",
        "transient_mib": LEASED_MIB,
    }
    return pb.GenerateRequest(prompt=prompt, **(base | fields))


def fresh(prompt: str = "a cat", **fields: Any) -> pb.GenerateRequest:
    """A request that the cache has no part in."""
    return asking(prompt, reuse=pb.GenerateRequest.Reuse(no_result_cache=True), **fields)


@dataclass(slots=True)
class Answer:
    """All events of one request, by kind."""

    started: pb.GenerateResponse.Started
    images: list[pb.GenerateResponse.Image]
    progress: list[pb.GenerateResponse.Progress]
    previews: list[pb.GenerateResponse.Preview]
    finish: pb.Finish
    order: list[str]

    @property
    def data(self) -> list[bytes]:
        """The files."""
        return [image.image.data for image in self.images]


@dataclass(slots=True)
class Engine:
    """A loaded engine, as its callers see it."""

    process: EngineProcess
    stub: "rpc.DiffusionServiceAsyncStub"
    ready: models_pb2.EngineReady
    model: LoadedModel
    _permits: "itertools.count[int]" = field(default_factory=itertools.count)

    def call(self, request: pb.GenerateRequest, permit: str | None = None) -> Any:
        """The stream, under a permit of its own."""
        permit = f"permit-{next(self._permits)}" if permit is None else permit
        metadata = ((PERMIT_ID, permit),) if permit else ()
        return self.stub.Generate(request, metadata=metadata, timeout=DEADLINE_S)

    async def generate(self, request: pb.GenerateRequest) -> Answer:
        """All of it."""
        return await answer_of(self.call(request))

    async def idle(self) -> None:
        """Wait until no permit is in use."""
        async with asyncio.timeout(DEADLINE_S):
            while self.process.permits.running:  # noqa: ASYNC110 - the ledger tells others alone
                await asyncio.sleep(0.005)


async def answer_of(stream: Any) -> Answer:
    found: dict[str, list[Any]] = {
        kind: [] for kind in ("started", "progress", "preview", "image", "finish")
    }
    order = []
    async for response in stream:
        kind = response.WhichOneof("event")
        order.append(kind)
        found[kind].append(getattr(response, kind))
    [started], [finish] = found["started"], found["finish"]
    return Answer(started, found["image"], found["progress"], found["preview"], finish, order)


@asynccontextmanager
async def engine(spec: EngineSpec, folder: Path) -> AsyncIterator[Engine]:
    """What `engine_main` makes of `spec`, in this process."""
    address = f"unix:{folder}/engine.sock"
    birth = Birth(address, KEY, "tiny-1", "info", as_json(spec))
    process = EngineProcess(birth, Server(engine_main.NAMES, drain_s=0.2))
    ready = await engine_main.load(process)
    await process.server.set_serving(True)
    process.permits.open()
    try:
        async with open_channel(address) as channel:
            model = process.usage.__self__  # type: ignore[attr-defined]  # the method of one
            yield Engine(process, rpc.DiffusionServiceStub(channel), ready, model)
    finally:
        await process.permits.close(DEADLINE_S)
        await process.server.stop()
