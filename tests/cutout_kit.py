"""An edge with scripted matting engines and a scripted job service: what their tests share."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

from chassis.errors import Fault, Reason
from chassis.server import Server
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.models.v1 import models_pb2
from tests.edge_kit import House, Peers, opened
from tests.picture_forge import saved
from tests.picture_kit import PNG

NETWORK = "u2netp"
PAINTER = "tiny"
WEBP = b"RIFF\x0c\x00\x00\x00WEBPcutout"
BEHIND = saved(Image.new("RGB", (5, 4)), "WEBP")
MATTE = b"\x89PNG\r\n\x1a\nmatte"
QUEUED, RUNNING = jobs_pb2.JOB_STATE_QUEUED, jobs_pb2.JOB_STATE_RUNNING
SUCCEEDED = jobs_pb2.JOB_STATE_SUCCEEDED


def network(key: str, **fields: Any) -> models_pb2.Model:
    return models_pb2.Model(key=key, service="matte", kind=models_pb2.MODEL_KIND_MATTE, **fields)


def painter(key: str) -> models_pb2.Model:
    return models_pb2.Model(key=key, service="diffusion", kind=models_pb2.MODEL_KIND_DIFFUSION)


def media(data: bytes, mime_type: str = "image/webp") -> common_pb2.Media:
    return common_pb2.Media(data=data, mime_type=mime_type)


def result(result_id: str, data: bytes, **fields: Any) -> jobs_pb2.Result:
    told: dict[str, Any] = {
        "role": jobs_pb2.RESULT_ROLE_CUTOUT,
        "mime_type": "image/webp",
        "size_bytes": len(data),
        "sha256": bytes(range(32)),
        "width_px": 2,
        "height_px": 2,
    }
    return jobs_pb2.Result(result_id=result_id, **(told | fields))


def job(job_id: str = "j1", **fields: Any) -> jobs_pb2.Job:
    told: dict[str, Any] = {
        "kind": jobs_pb2.JOB_KIND_BACKGROUND_REMOVAL,
        "state": QUEUED,
        "revision": 1,
        "created_unix_ms": 1_700_000_000_999,
    }
    return jobs_pb2.Job(job_id=job_id, **(told | fields))


class PicturePeers(Peers, matte_pb2_grpc.MatteServiceServicer, jobs_pb2_grpc.JobServiceServicer):
    """Peers that cut out and keep jobs, too, as the test says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.models += [
            network(NETWORK),
            painter(PAINTER),
        ]
        self.removals: list[matte_pb2.RemoveBackgroundRequest] = []
        self.removal_plans: list[matte_pb2.PlanRemovalRequest] = []
        self.submits: list[jobs_pb2.SubmitJobRequest] = []
        self.lists: list[jobs_pb2.ListJobsRequest] = []
        self.watches: list[jobs_pb2.WatchJobRequest] = []
        self.reads: list[jobs_pb2.ReadResultRequest] = []
        self.jobs: dict[str, jobs_pb2.Job] = {}
        self.files: dict[str, bytes] = {}
        self.existing = False
        self.remove: Callable[[Any], Any] = self.cuts_out
        self.plan: Callable[[Any], matte_pb2.PlanRemovalResponse] = lambda _asked: (
            matte_pb2.PlanRemovalResponse(transient_mib=400)
        )
        self.submit: Callable[[Any], Any] = self.accepts
        self.watch: Callable[[Any], AsyncIterator[jobs_pb2.Job]] = self.tells
        self.read: Callable[[Any], AsyncIterator[bytes]] = self.gives

    # What the matting engine does.

    async def cuts_out(self, request: Any) -> matte_pb2.RemoveBackgroundResponse:
        answer = matte_pb2.RemoveBackgroundResponse(
            width_px=2, height_px=2, coverage=0.25, device="cpu"
        )
        answer.timings.network_ms = 12.345
        if not request.matte_only:
            answer.image.CopyFrom(media(WEBP))
        if request.return_background:
            answer.background.CopyFrom(media(BEHIND))
        if request.return_matte:
            answer.matte.CopyFrom(media(MATTE, "image/png"))
        return answer

    async def hangs_on(self, _request: Any) -> Any:
        await asyncio.Event().wait()

    async def PlanRemoval(self, request: Any, _context: Any) -> matte_pb2.PlanRemovalResponse:
        self.removal_plans.append(request)
        return self.plan(request)

    async def RemoveBackground(self, request: Any, context: Any) -> Any:
        self.removals.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        await self.note("remove")
        try:
            return await self.remove(request)
        finally:
            await self.note("remove over")

    # What the job service does.

    async def accepts(self, request: Any) -> jobs_pb2.SubmitJobResponse:
        accepted = job(idempotency_key=request.idempotency_key, request_id=request.request_id)
        self.jobs[accepted.job_id] = accepted
        return jobs_pb2.SubmitJobResponse(job=accepted, existing=self.existing)

    async def SubmitJob(self, request: Any, _context: Any) -> Any:
        self.submits.append(request)
        return await self.submit(request)

    def _job(self, job_id: str) -> jobs_pb2.Job:
        if job_id not in self.jobs:
            raise Fault(Reason.JOB_NOT_FOUND, f"There is no job `{job_id}`.")
        return self.jobs[job_id]

    async def GetJob(self, request: Any, _context: Any) -> Any:
        return jobs_pb2.GetJobResponse(job=self._job(request.job_id))

    async def ListJobs(self, request: Any, _context: Any) -> Any:
        self.lists.append(request)
        token = "" if request.page_token else "more"
        return jobs_pb2.ListJobsResponse(jobs=self.jobs.values(), next_page_token=token)

    async def CancelJob(self, request: Any, _context: Any) -> Any:
        cancelled = self._job(request.job_id)
        cancelled.state = jobs_pb2.JOB_STATE_CANCELLED
        return jobs_pb2.CancelJobResponse(job=cancelled)

    async def tells(self, request: Any) -> AsyncIterator[jobs_pb2.Job]:
        yield self._job(request.job_id)

    async def WatchJob(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        self.watches.append(request)
        await self.note("watch")
        try:
            async for told in self.watch(request):
                yield jobs_pb2.WatchJobResponse(job=told)
        finally:
            await self.note("watch over")

    async def gives(self, request: Any) -> AsyncIterator[bytes]:
        yield self.files[request.result_id][request.offset_bytes :]

    async def ReadResult(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        self.reads.append(request)
        at = request.offset_bytes
        try:
            async for data in self.read(request):
                yield jobs_pb2.ReadResultResponse(offset_bytes=at, data=data)
                at += len(data)
        finally:
            await self.note("read over")

    def serve(self, server: Server) -> None:
        super().serve(server)
        matte_pb2_grpc.add_MatteServiceServicer_to_server(self, server.grpc)
        jobs_pb2_grpc.add_JobServiceServicer_to_server(self, server.grpc)


def peers_of(house: House) -> PicturePeers:
    assert isinstance(house.peers, PicturePeers)
    return house.peers


def pictures(folder: Path, **changes: Any) -> AbstractAsyncContextManager[House]:
    """A house that cuts out and keeps jobs; `house.peers` are `PicturePeers`."""
    return opened(folder, ("llm", "matte"), PicturePeers, jobs=True, **changes)


PATH = "/v1/images/background-removals"
B64 = base64.b64encode(PNG).decode()


def error_of(answer: httpx.Response) -> Any:
    return answer.json()["error"]


async def refused(house: House, status: int, **body: Any) -> Any:
    """Why the removal of a picture's background is refused, before any engine hears of it."""
    answer = await house.http.post(PATH, json={"image": B64, **body})
    assert answer.status_code == status, answer.text
    assert peers_of(house).removals == []
    return error_of(answer)


async def cut(house: House, **body: Any) -> httpx.Response:
    """The answer to the removal of a picture's background."""
    answer = await house.http.post(PATH, json={"image": B64, **body})
    assert answer.status_code == 200, answer.text
    return answer
