"""What can be asked about jobs that were handed in: list, look, watch, cancel, read what they made."""

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from edge.documenting import answers, header, said
from edge.jobs.calls import OWNER, JobCalls
from edge.jobs.events import HEADER, Events
from edge.jobs.listing import MOST, USUAL, list_request
from edge.jobs.reading import KINDS, STATES, job_view, page_view
from edge.jobs.results import Results, main_result, result_of
from edge.jobs.views import JobPage, JobView
from edge.speech import ErrorEnvelope

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
            openapi_extra={"parameters": _FILTERS},
        )
        async def list_jobs(request: Request) -> Response:
            return _json(page_view(await self.calls.jobs(list_request(request.query_params, OWNER))))

        @router.get(
            "/{job_id}",
            summary="Look at a job",
            responses=answers(JobView, "The job as it stands.", 404, 503),
        )
        async def get_job(job_id: str) -> Response:
            return _json(job_view(await self.calls.job(job_id)))

    def _add_events(self, router: APIRouter) -> None:
        @router.get(
            "/{job_id}/events",
            summary="Watch a job",
            description="The job at once, then after every change, to its final state.",
            responses=_WATCHED,
            openapi_extra={"parameters": [_LAST_EVENT]},
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
        async def cancel_job(job_id: str) -> Response:
            return _json(job_view(await self.calls.cancel(job_id)))

        @router.delete("/{job_id}", summary="Ask a job to end, by the verb", **cancels)
        async def delete_job(job_id: str) -> Response:
            return _json(job_view(await self.calls.cancel(job_id)))

    def _add_results(self, router: APIRouter) -> None:
        read: dict[str, Any] = {
            "responses": _READ,
            "openapi_extra": {"parameters": _RANGES},
        }

        @router.get("/{job_id}/results/{result_id}", summary="Read a result", **read)
        async def get_result(job_id: str, result_id: str, request: Request) -> Response:
            result = result_of(await self.calls.job(job_id), result_id)
            return self.results.answer(job_id, result, request)

        @router.get("/{job_id}/result", summary="Read the picture that was asked for", **read)
        async def get_main_result(job_id: str, request: Request) -> Response:
            result = main_result(await self.calls.job(job_id))
            return self.results.answer(job_id, result, request)


def _query(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _words(words: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": list(words)}}


_FILTERS = [
    _query("state", "Jobs of these states.", _words(STATES.values())),
    _query("kind", "Jobs of these kinds.", _words(KINDS.values())),
    _query(
        "limit",
        "Most jobs of a page.",
        {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
    ),
    _query("page_token", "`next_page_token` of the page before.", {"type": "string"}),
]
_LAST_EVENT = header(
    HEADER, "The `id` of the last event that was seen.", {"type": "string", "pattern": r"^\d{1,19}$"}
)
_RANGES = [
    header("range", "One range of bytes.", {"type": "string"}),
    header("if-range", "The `etag` that the range is of.", {"type": "string"}),
    header("if-none-match", "The `etag` of what is there already.", {"type": "string"}),
]
_FILE = {"schema": {"type": "string", "format": "binary"}}
_PICTURES = {kind: _FILE for kind in ("image/webp", "image/png", "image/jpeg")}
_EVENTS = {"text/event-stream": {"schema": {"$ref": "#/components/schemas/JobView"}}}
_WATCHED: dict[int | str, dict[str, Any]] = {
    **answers(JobView, "Events named `job`, each with the job.", 400, 404, 503),
    200: {"description": "Events named `job`, each with the job.", "content": _EVENTS},
    204: {"description": "The last event that was seen was the last there is."},
}
_READ: dict[int | str, dict[str, Any]] = {
    **answers(JobView, "The file.", 404, 503),
    200: {"description": "The file.", "content": _PICTURES},
    206: {"description": "The part of it that was wanted.", "content": _PICTURES},
    304: {"description": "It is what is there already."},
    410: said(ErrorEnvelope, "The file is kept no longer."),
    416: said(ErrorEnvelope, "There are no such bytes."),
}


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")
