"""What can be asked about jobs that were handed in: list, look, watch, cancel, read results."""

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from edge.documenting import answers
from edge.jobs.calls import JobCalls
from edge.jobs.described_looks import FILTERS, RANGES, READ, RESUMED, WATCHED
from edge.jobs.events import Events
from edge.jobs.listing import list_request
from edge.jobs.reading import job_view, page_view
from edge.jobs.results import Results, main_result, result_of
from edge.jobs.views import JobPage, JobView
from edge.keys.caller import caller_of

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class JobRoutes:
    """Adds them to an application."""

    calls: JobCalls
    events: Events
    results: Results

    def add_to(self, app: FastAPI) -> None:
        """All of them."""
        router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
        self._add_looks(router)
        self._add_events(router)
        self._add_cancels(router)
        self._add_results(router)
        app.include_router(router)

    def _add_looks(self, router: APIRouter) -> None:
        @router.get(
            "",
            summary="List the jobs, newest first",
            responses=answers(JobPage, "A page of jobs.", 400, 503),
            openapi_extra=FILTERS,
        )
        async def list_jobs(request: Request) -> Response:
            wish = list_request(request.query_params, _owner(request))
            return _json(page_view(await self.calls.jobs(wish)))

        @router.get(
            "/{job_id}",
            summary="Look at a job",
            responses=answers(JobView, "The job as it stands.", 404, 503),
        )
        async def get_job(job_id: str, request: Request) -> Response:
            return _json(job_view(await self.calls.job(_owner(request), job_id)))

    def _add_events(self, router: APIRouter) -> None:
        @router.get(
            "/{job_id}/events",
            summary="Watch a job",
            description="The job at once, then after every change, to its final state.",
            responses=WATCHED,
            openapi_extra=RESUMED,
        )
        async def watch_job(job_id: str, request: Request) -> Response:
            return await self.events.of(job_id, request)

    def _add_cancels(self, router: APIRouter) -> None:
        cancels: dict[str, Any] = {
            "description": "A queued job is cancelled when this answers; a running one once its "
            "call has ended. One that is over stays as it is.",
            "responses": answers(JobView, "The job as it stands now.", 404, 503),
        }

        @router.post("/{job_id}/cancel", summary="Ask a job to end", **cancels)
        async def cancel_job(job_id: str, request: Request) -> Response:
            return _json(job_view(await self.calls.cancel(_owner(request), job_id)))

        @router.delete("/{job_id}", summary="Ask a job to end, by the verb", **cancels)
        async def delete_job(job_id: str, request: Request) -> Response:
            return _json(job_view(await self.calls.cancel(_owner(request), job_id)))

    def _add_results(self, router: APIRouter) -> None:
        read: dict[str, Any] = {"responses": READ, "openapi_extra": RANGES}

        @router.get("/{job_id}/results/{result_id}", summary="Read a result", **read)
        async def get_result(job_id: str, result_id: str, request: Request) -> Response:
            result = result_of(await self.calls.job(_owner(request), job_id), result_id)
            return self.results.answer(job_id, result, request)

        @router.get("/{job_id}/result", summary="Read the picture that was asked for", **read)
        async def get_main_result(job_id: str, request: Request) -> Response:
            result = main_result(await self.calls.job(_owner(request), job_id))
            return self.results.answer(job_id, result, request)


def _owner(request: Request) -> str:
    """Whose jobs are seen; in open mode they are everybody's."""
    return caller_of(request.scope).name


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")
