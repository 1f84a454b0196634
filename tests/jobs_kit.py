"""A job service on a socket, with scripted peers in place of scheduler, diffusion and matte."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from chassis.channel import open_channel
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from chassis.server import Server
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as paint
from cohabit.diffusion.v1 import diffusion_pb2_grpc
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.jobs.v1 import jobs_pb2_grpc
from cohabit.matte.v1 import matte_pb2 as matte
from cohabit.matte.v1 import matte_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2 as sched
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from imaging.encode import encode
from imaging.values import Encoding, Format, Picture
from services.jobs.__main__ import book_of
from services.jobs.clients import Addresses, Calls
from services.jobs.config import JobsConfig
from services.jobs.disk import Disk
from services.jobs.files import Files
from services.jobs.runner import Runner
from services.jobs.servicer import JobServicer
from services.jobs.shell import Shell
from services.jobs.store import Store

DEADLINE_S = 20.0
_PAINTED = {
    paint.IMAGE_FORMAT_PPM: Format.PNM,
    paint.IMAGE_FORMAT_PNG: Format.PNG,
    paint.IMAGE_FORMAT_WEBP: Format.WEBP,
    paint.IMAGE_FORMAT_JPEG: Format.JPEG,
}
_CUT = {
    matte.IMAGE_FORMAT_PNM: Format.PNM,
    matte.IMAGE_FORMAT_PNG: Format.PNG,
    matte.IMAGE_FORMAT_WEBP: Format.WEBP,
    matte.IMAGE_FORMAT_JPEG: Format.JPEG,
}


def picture(width_px: int, height_px: int, value: int = 99, *, alpha: bool = False) -> Picture:
    rgb = np.full((height_px, width_px, 3), value, np.uint8)
    return Picture(rgb, np.full((height_px, width_px), 128, np.uint8) if alpha else None)


def file(shown: Picture, form: Format = Format.PNG) -> common_pb2.Media:
    written = encode(shown, Encoding(form))
    return common_pb2.Media(data=written.data, mime_type=written.mime_type)


class Peers(
    scheduler_pb2_grpc.SchedulerServiceServicer,
    diffusion_pb2_grpc.DiffusionServiceServicer,
    matte_pb2_grpc.MatteServiceServicer,
):
    """They do their work at once, unless the test holds them or has them fail; and remember."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix:{folder}/peers.sock"
        self.status = sched.Status(
            reconciled=True,
            models=[
                _model("painter", "diffusion", "painters"),
                _model("cutter", "matte"),
                _model("talker", "llm"),
            ],
        )
        self.admits: list[sched.AdmitRequest] = []
        self.plans: list[paint.PlanGenerationRequest] = []
        self.generates: list[paint.GenerateRequest] = []
        self.removals: list[matte.RemoveBackgroundRequest] = []
        self.composites: list[matte.CompositeRequest] = []
        self.faults: list[Fault] = []
        """What the next calls of engines fail with, one each."""
        self.held = asyncio.Event()
        """Engines begin, and go on when it is set."""
        self.held.set()
        self.began = asyncio.Event()
        self.permits = self.most_permits = 0
        self.composing_with_permit = False
        self.max_px = 0

    async def GetStatus(self, _request: Any, _context: Any) -> sched.GetStatusResponse:
        return sched.GetStatusResponse(status=self.status)

    async def Admit(self, request: Any, _context: Any) -> AsyncIterator[sched.AdmitResponse]:
        self.admits.append(request)
        yield sched.AdmitResponse(queued=sched.AdmitResponse.Queued(position=1, resume_token="t"))
        self.permits += 1
        self.most_permits = max(self.permits, self.most_permits)
        try:
            yield sched.AdmitResponse(
                granted=sched.AdmitResponse.Granted(
                    permit_id="p",
                    address=self.address,
                    model_key=request.model,
                    transient_lease_id="lease",
                    transient_mib=77,
                )
            )
            await asyncio.Event().wait()
        finally:
            self.permits -= 1

    async def PlanGeneration(self, request: Any, _context: Any) -> paint.PlanGenerationResponse:
        self.plans.append(request)
        if self.max_px and request.width_px * request.height_px > self.max_px:
            raise Fault(Reason.IMAGE_TOO_LARGE, "Too large.", metadata={"max_px": str(self.max_px)})
        return paint.PlanGenerationResponse(preferred_transient_mib=200, minimum_transient_mib=100)

    async def Generate(self, request: Any, _context: Any) -> AsyncIterator[paint.GenerateResponse]:
        self.generates.append(request)
        self._maybe_fail()
        yield paint.GenerateResponse(started=paint.GenerateResponse.Started(seed=request.seed))
        yield paint.GenerateResponse(
            progress=paint.GenerateResponse.Progress(
                phase=paint.GenerateResponse.PHASE_DENOISE, done_steps=1, total_steps=2
            )
        )
        self.began.set()
        await self.held.wait()
        width, height = request.width_px or 32, request.height_px or 16
        made = file(picture(width, height, request.seed % 251), _PAINTED[request.output.format])
        yield paint.GenerateResponse(
            image=paint.GenerateResponse.Image(
                image=made, width_px=width, height_px=height, seed=request.seed
            )
        )
        yield paint.GenerateResponse(finish=paint.Finish())

    async def PlanRemoval(self, request: Any, _context: Any) -> matte.PlanRemovalResponse:
        return matte.PlanRemovalResponse(transient_mib=request.width_px * request.height_px)

    async def RemoveBackground(self, request: Any, _context: Any) -> matte.RemoveBackgroundResponse:
        self.removals.append(request)
        self._maybe_fail()
        self.began.set()
        await self.held.wait()
        form = _CUT[request.output.format]
        cut = picture(40, 30, 10, alpha=not request.HasField("backdrop"))
        answer = matte.RemoveBackgroundResponse(image=file(cut, form), width_px=40, height_px=30)
        if request.return_background:
            answer.background.CopyFrom(file(picture(40, 30, 20), form))
        if request.return_matte:
            gray = encode(np.full((30, 40), 128, np.uint8), Encoding(form))
            answer.matte.data, answer.matte.mime_type = gray.data, gray.mime_type
        return answer

    async def Composite(self, request: Any, _context: Any) -> matte.CompositeResponse:
        self.composites.append(request)
        self.composing_with_permit |= self.permits > 0
        made = file(picture(40, 30, 30), _CUT[request.output.format])
        return matte.CompositeResponse(image=made, width_px=40, height_px=30)

    def _maybe_fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = Server((), drain_s=0)
        scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(self, server.grpc)
        diffusion_pb2_grpc.add_DiffusionServiceServicer_to_server(self, server.grpc)
        matte_pb2_grpc.add_MatteServiceServicer_to_server(self, server.grpc)
        await server.start(self.address)
        try:
            yield
        finally:
            self.held.set()
            await server.stop()


def _model(key: str, service: str, family: str = "") -> sched.Status.ModelStatus:
    return sched.Status.ModelStatus(model_key=key, service=service, family=family)


class Service:
    """A job service in this process, over a store that outlives it."""

    def __init__(self, stub: "jobs_pb2_grpc.JobServiceAsyncStub", folder: Path) -> None:
        self.stub, self.folder = stub, folder

    async def submit(self, spec: pb.JobSpec, **more: Any) -> pb.Job:
        request = pb.SubmitJobRequest(spec=spec, **more)
        return (await self.stub.SubmitJob(request, timeout=DEADLINE_S)).job

    async def get(self, job_id: str) -> pb.Job:
        return (await self.stub.GetJob(pb.GetJobRequest(job_id=job_id), timeout=DEADLINE_S)).job

    async def ended(self, job_id: str) -> pb.Job:
        """The job once it has ended."""
        last = pb.Job()
        watch = self.stub.WatchJob(pb.WatchJobRequest(job_id=job_id), timeout=DEADLINE_S)
        async for told in watch:
            last = told.job
        return last

    async def until(self, job_id: str, state: "pb.JobState.ValueType") -> pb.Job:
        watch = self.stub.WatchJob(pb.WatchJobRequest(job_id=job_id), timeout=DEADLINE_S)
        async for told in watch:
            if told.job.state == state:
                watch.cancel()
                return told.job
        raise AssertionError("it ended otherwise")

    async def read(self, job_id: str, result_id: str, offset_bytes: int = 0) -> bytes:
        request = pb.ReadResultRequest(
            job_id=job_id, result_id=result_id, offset_bytes=offset_bytes
        )
        data = b""
        async for piece in self.stub.ReadResult(request, timeout=DEADLINE_S):
            assert piece.offset_bytes == offset_bytes + len(data)
            data += piece.data
        return data


@asynccontextmanager
async def serving(folder: Path, peers: Peers, **changes: Any) -> AsyncIterator[Service]:
    """A job service until the end of the block; what it keeps stays in the folder."""
    config = JobsConfig(**{"retry_first_s": 0.01, "retry_most_s": 0.01, **changes})
    files = Files(folder / "jobs" / "files")
    calls = Calls(Addresses(peers.address, peers.address, peers.address), DEADLINE_S)
    runner = Runner(calls, files, Encoding(), config.matte_model)
    shell = Shell(book_of(config), Disk(Store(folder / "jobs"), files), runner, steady_ms)
    await shell.start()
    server = Server(("cohabit.jobs.v1.JobService",), drain_s=1.0)
    server.leaving.append(shell.board.close)
    server.closing.push_async_callback(calls.close)
    server.closing.push_async_callback(shell.close)
    jobs_pb2_grpc.add_JobServiceServicer_to_server(JobServicer(shell, calls, config), server.grpc)
    address = await server.start(f"unix:{folder}/jobs.sock")
    try:
        async with open_channel(address) as channel:
            yield Service(jobs_pb2_grpc.JobServiceStub(channel), folder)
    finally:
        await server.stop()
    assert not shell.broken.is_set()
