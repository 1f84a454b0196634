"""Jobs as cohabit.jobs.v1 tells them."""

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from services.jobs.core.plan import progress_of
from services.jobs.core.values import Failure, Job, Outcome, Step


def job_message(job: Job, position: int, spec: pb.JobSpec | None = None) -> pb.Job:
    """A job as it stands. The numbers of the core's enums are those of the wire."""
    return pb.Job(
        job_id=job.job_id,
        owner=job.owner,
        kind=pb.JobKind.ValueType(job.kind),
        state=pb.JobState.ValueType(job.state),
        revision=job.revision,
        progress=progress_of(job),
        steps=[_step(step) for step in job.steps],
        results=[result_message(made, expired=job.expired) for made in job.results],
        failure=_failure(job.failure),
        cancel_requested=job.cancel_requested,
        position=position,
        spec=spec,
        idempotency_key=job.idempotency_key,
        request_id=job.request_id,
        created_unix_ms=job.created_ms,
        started_unix_ms=job.started_ms,
        ended_unix_ms=job.ended_ms,
        expires_unix_ms=job.expires_ms,
    )


def result_message(made: Outcome, *, expired: bool) -> pb.Result:
    """A result, without its bytes."""
    return pb.Result(
        result_id=made.result_id,
        role=pb.ResultRole.ValueType(made.role),
        index=made.index,
        mime_type=made.mime_type,
        size_bytes=made.size_bytes,
        sha256=made.sha256,
        width_px=made.width_px,
        height_px=made.height_px,
        seed=made.seed,
        expired=expired,
    )


def result_of(job: Job, result_id: str) -> Outcome:
    """A result whose file is there. Faults: result_not_found, result_expired."""
    made = next((made for made in job.results if made.result_id == result_id), None)
    if made is None:
        there = ", ".join(made.result_id for made in job.results)
        raise Fault(
            Reason.RESULT_NOT_FOUND,
            f"Job '{job.job_id}' has no result '{result_id[:64]}'; "
            + (f"it has: {there}." if there else f"it is {job.state.name.lower()} and has none."),
            metadata={"param": "result_id"},
        )
    if job.expired:
        raise expired(result_id)
    return made


def expired(result_id: str) -> Fault:
    """The file is gone."""
    return Fault(
        Reason.RESULT_EXPIRED,
        f"Result '{result_id[:64]}' is not kept any more: its space was needed; run the job again.",
    )


def _step(step: Step) -> pb.Step:
    return pb.Step(
        kind=pb.StepKind.ValueType(step.kind),
        state=pb.StepState.ValueType(step.state),
        progress=step.progress,
        index=step.index,
        model_key=step.model,
        attempts=step.attempts,
        failure=_failure(step.failure),
        started_unix_ms=step.started_ms,
        ended_unix_ms=step.ended_ms,
    )


def _failure(failure: Failure | None) -> common_pb2.Failure | None:
    if failure is None:
        return None
    return common_pb2.Failure(
        reason=failure.reason, message=failure.message, retry_at_unix_ms=failure.retry_at_ms
    )
