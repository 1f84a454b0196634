"""What the job service tells, as the views of `views`. Pure."""

from collections.abc import Iterable, Mapping
from typing import cast

from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs import views

FINAL = frozenset((pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED))
_UNKNOWN = "unknown"


def _words(values: Iterable[tuple[str, int]], prefix: str) -> Mapping[int, str]:
    return {value: name.removeprefix(prefix).lower() for name, value in values if value}


KINDS = _words(pb.JobKind.items(), "JOB_KIND_")
STATES = _words(pb.JobState.items(), "JOB_STATE_")
_STEP_KINDS = _words(pb.StepKind.items(), "STEP_KIND_")
_STEP_STATES = _words(pb.StepState.items(), "STEP_STATE_")
_ROLES = _words(pb.ResultRole.items(), "RESULT_ROLE_")
"""By number; one of a newer service is unknown."""


def result_path(job_id: str, result_id: str) -> str:
    """The route that gives a result's bytes."""
    return f"/v1/jobs/{job_id}/results/{result_id}"


def job_view(job: pb.Job) -> views.JobView:
    """A job as it stands."""
    failed = job.state == pb.JOB_STATE_FAILED
    return views.JobView(
        id=job.job_id,
        kind=cast("views.JobKindWord", KINDS.get(job.kind, _UNKNOWN)),
        state=cast("views.JobStateWord", STATES.get(job.state, _UNKNOWN)),
        revision=job.revision,
        progress=round(job.progress, 4),
        position=job.position if job.state == pb.JOB_STATE_QUEUED else None,
        cancel_requested=job.cancel_requested,
        steps=[_step(step) for step in job.steps],
        results=[_result(job.job_id, result) for result in job.results],
        error=_error(job.failure) if failed else None,
        request=_request(job.spec) if job.HasField("spec") else None,
        idempotency_key=job.idempotency_key or None,
        request_id=job.request_id,
        created_at=job.created_unix_ms // 1000,
        started_at=_seconds(job.started_unix_ms),
        ended_at=_seconds(job.ended_unix_ms),
        expires_at=_seconds(job.expires_unix_ms),
    )


def page_view(answer: pb.ListJobsResponse) -> views.JobPage:
    """A page of jobs."""
    return views.JobPage([job_view(job) for job in answer.jobs], answer.next_page_token or None)


def role_of(result: pb.Result) -> str:
    """What a result is, in a word."""
    return _ROLES.get(result.role, _UNKNOWN)


def _step(step: pb.Step) -> views.JobStep:
    return views.JobStep(
        kind=_STEP_KINDS.get(step.kind, _UNKNOWN),
        state=_STEP_STATES.get(step.state, _UNKNOWN),
        progress=round(step.progress, 4),
        index=step.index,
        model=step.model_key or None,
        attempts=step.attempts,
        error=_error(step.failure) if step.HasField("failure") else None,
        started_at=_seconds(step.started_unix_ms),
        ended_at=_seconds(step.ended_unix_ms),
    )


def _result(job_id: str, result: pb.Result) -> views.JobResult:
    return views.JobResult(
        id=result.result_id,
        role=role_of(result),
        index=result.index,
        mime_type=result.mime_type,
        size_bytes=result.size_bytes,
        sha256=result.sha256.hex(),
        width=result.width_px,
        height=result.height_px,
        seed=result.seed if result.HasField("seed") else None,
        url=result_path(job_id, result.result_id),
        published_url=result.url or None,
        expired=result.expired,
    )


def _error(failure: common_pb2.Failure) -> views.JobError:
    return views.JobError(failure.reason, failure.message, _seconds(failure.retry_at_unix_ms))


def _request(spec: pb.JobSpec) -> views.JobRequest | None:
    match spec.WhichOneof("work"):
        case "image_generation":
            asked = _picture(spec.image_generation.picture)
            asked.n = spec.image_generation.count or 1
            return asked
        case "foreground_generation":
            work = spec.foreground_generation
            return _cut_out(_picture(work.picture), work.cutout)
        case "background_removal":
            return _cut_out(views.JobRequest(), spec.background_removal.cutout)
    return None


def _picture(picture: pb.Picture) -> views.JobRequest:
    return views.JobRequest(
        model=picture.model,
        prompt=picture.prompt,
        negative_prompt=picture.negative_prompt,
        width=picture.width_px,
        height=picture.height_px,
        steps=picture.steps,
        guidance=picture.guidance if picture.HasField("guidance") else None,
        seed=picture.seed if picture.HasField("seed") else None,
    )


def _cut_out(asked: views.JobRequest, cutout: pb.CutoutOptions) -> views.JobRequest:
    asked.matte_model = cutout.model
    backdrop = cutout.WhichOneof("backdrop") or ""
    asked.background = cutout.color if backdrop == "color" else backdrop
    asked.background_prompt = cutout.generated.picture.prompt
    asked.background_strength = cutout.generated.background_strength or None
    return asked


def _seconds(unix_ms: int) -> int | None:
    return unix_ms // 1000 if unix_ms else None
