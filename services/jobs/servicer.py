"""Wire ↔ domain for cohabit.jobs.v1, nothing else: checks fields, calls the shell, translates."""

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from chassis import log
from chassis.errors import Fault, Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.jobs.v1 import jobs_pb2_grpc as rpc
from services.jobs.checks import check
from services.jobs.clients import Calls
from services.jobs.config import JobsConfig
from services.jobs.core.pages import InvalidToken, Listing, page
from services.jobs.core.plan import steps_of
from services.jobs.core.values import Accepted, Draft
from services.jobs.models import DIFFUSION, MATTE, find
from services.jobs.shell import Shell
from services.jobs.spec import cutout_of, draw_seeds, hash_of, strip, work_of, wrong
from services.jobs.wire import expired, job_message, result_message, result_of

if TYPE_CHECKING:
    import grpc

    Context = grpc.aio.ServicerContext[Any, Any]

_MAX_NAME_CHARS = 128
_PAGE = 50
_MAX_PAGE = 200
_SEEDS = 1 << 31


class JobServicer(rpc.JobServiceServicer):
    """JobService over a shell."""

    def __init__(self, shell: Shell, calls: Calls, config: JobsConfig) -> None:
        self._shell, self._calls, self._config = shell, calls, config

    async def SubmitJob(
        self, request: pb.SubmitJobRequest, context: "Context"
    ) -> pb.SubmitJobResponse:
        """Accept."""
        _named("owner", request.owner)
        _named("idempotency_key", request.idempotency_key)
        await asyncio.to_thread(check, request.spec)
        pictures = strip(request.spec)
        request_hash = await asyncio.to_thread(hash_of, request.spec, pictures, request.keep_s)
        draft = self._draft(request, request_hash)
        said = await self._shell.look(draft)
        if said is None:
            said = await self._accept(draft, pictures, request.spec)
        job = said.job
        return pb.SubmitJobResponse(
            job=job_message(job, self._shell.board.position(job)), existing=said.existing
        )

    async def GetJob(self, request: pb.GetJobRequest, context: "Context") -> pb.GetJobResponse:
        """One, with its spec."""
        self._shell.board.get(request.owner, request.job_id)
        raw = await self._shell.spec(request.job_id)
        job = self._shell.board.get(request.owner, request.job_id)
        spec = pb.JobSpec.FromString(raw or b"")
        return pb.GetJobResponse(job=job_message(job, self._shell.board.position(job), spec))

    async def ListJobs(
        self, request: pb.ListJobsRequest, context: "Context"
    ) -> pb.ListJobsResponse:
        """A page."""
        listing = Listing(request.owner, frozenset(request.states), frozenset(request.kinds))
        size = min(_MAX_PAGE, request.page_size or _PAGE)
        board = self._shell.board
        try:
            jobs, token = page(board.newest_first(), listing, size, request.page_token)
        except InvalidToken:
            raise Fault(
                Reason.INVALID_PAGE_TOKEN,
                "This page token belongs to no listing, or to one with other filters; begin with "
                "an empty one.",
                metadata={"param": "page_token"},
            ) from None
        before = board.positions(jobs)
        messages = [job_message(job, before.get(job.job_id, 0)) for job in jobs]
        return pb.ListJobsResponse(jobs=messages, next_page_token=token)

    async def CancelJob(
        self, request: pb.CancelJobRequest, context: "Context"
    ) -> pb.CancelJobResponse:
        """Ask to end."""
        job = await self._shell.cancel(request.owner, request.job_id)
        return pb.CancelJobResponse(job=job_message(job, 0))

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: "Context"
    ) -> AsyncIterator[pb.WatchJobResponse]:
        """Every change, to the end."""
        board = self._shell.board
        watched = board.watch(request.owner, request.job_id, request.after_revision)
        async with aclosing(watched) as jobs:
            async for job in jobs:
                yield pb.WatchJobResponse(job=job_message(job, board.position(job)))

    async def ReadResult(
        self, request: pb.ReadResultRequest, context: "Context"
    ) -> AsyncIterator[pb.ReadResultResponse]:
        """The bytes."""
        job = self._shell.board.get(request.owner, request.job_id)
        made = result_of(job, request.result_id)
        at = request.offset_bytes
        if at > made.size_bytes:
            raise Fault(
                Reason.INVALID_OFFSET,
                f"`offset_bytes` is {at}, but the result has {made.size_bytes} bytes.",
                metadata={"param": "offset_bytes", "size_bytes": str(made.size_bytes)},
            )
        first = pb.ReadResultResponse(offset_bytes=at, result=result_message(made, expired=False))
        try:
            async with aclosing(self._shell.pieces(job.job_id, made.name, at)) as pieces:
                async for offset, piece in pieces:
                    first.offset_bytes, first.data = offset, piece
                    yield first
                    first = pb.ReadResultResponse()
        except FileNotFoundError:
            raise expired(request.result_id) from None
        if first.HasField("result"):
            yield first

    async def _accept(
        self, draft: Draft, pictures: Mapping[str, bytes], spec: pb.JobSpec
    ) -> Accepted:
        await self._check_models(spec)
        draw_seeds(spec, lambda: secrets.randbelow(_SEEDS))
        return await self._shell.submit(draft, pictures, spec.SerializeToString())

    async def _check_models(self, spec: pb.JobSpec) -> None:
        """Refuse what no model can do. When that cannot be told now, its steps will find out."""
        try:
            status = await self._calls.status()
            work = work_of(spec)
            if work.picture_model:
                find(status, work.picture_model, DIFFUSION, "picture.model")
            if work.backdrop_model:
                find(status, work.backdrop_model, DIFFUSION, "cutout.generated.picture.model")
            if cutout_of(spec) is not None:
                name = work.matte_model or self._config.matte_model
                find(status, name, MATTE, "cutout.model")
        except Fault as fault:
            if fault.reason is not Reason.SERVICE_UNAVAILABLE:
                raise
            log.get().info("models unknown at submission")

    def _draft(self, request: pb.SubmitJobRequest, request_hash: bytes) -> Draft:
        keep_s = min(request.keep_s or self._config.keep_s, self._config.max_keep_s)
        work = work_of(request.spec)
        return Draft(
            job_id=f"job_{uuid.uuid4().hex}",
            owner=request.owner,
            kind=work.kind,
            steps=steps_of(work),
            keep_ms=round(keep_s * 1000),
            request_hash=request_hash,
            idempotency_key=request.idempotency_key,
            request_id=(request.request_id or log.request_id.get())[:_MAX_NAME_CHARS],
            inputs=(),
        )


def _named(field: str, name: str) -> None:
    if len(name) > _MAX_NAME_CHARS:
        raise wrong(field, f"at most {_MAX_NAME_CHARS} characters")
