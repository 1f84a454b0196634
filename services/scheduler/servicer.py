"""cohabit.scheduler.v1.SchedulerService: wire ↔ domain, nothing else."""

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc

from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from chassis.signing import Signer
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from services.scheduler.core.settings import Settings
from services.scheduler.core.values import Cause, Grant, Loading, Queued, Refuse, Request, Tier
from services.scheduler.shell import Notice, SchedulerShell
from services.scheduler.status import Watched, status_message

_MOST_KEY_CHARS = 128
_MOST_MIB = 1 << 40
_WATCH_SILENCE_S = 9.0

Context = grpc.aio.ServicerContext[Any, Any]

_SENTENCES: dict[Cause, str] = {
    Cause.MODEL_NOT_FOUND: "There is no model '{detail}'; ListModels says which there are.",
    Cause.QUEUE_FULL: "{detail} requests of this tier are waiting already; try again later.",
    Cause.KEY_QUEUE_FULL: "{detail} requests of this client are waiting for the model already; "
    "wait for some of them.",
    Cause.MODEL_QUEUE_FULL: "{detail} requests are waiting for this model already; try again "
    "later, or another model.",
    Cause.PARENT_OVER: "The permit named as the parent does not run, so nothing can run under it.",
    Cause.SATURATED: "The device is busy and this request did not want to wait.",
    Cause.ADMISSION_TIMEOUT: "The request waited longer than its lane allows; try again later.",
    Cause.MODEL_FAILED: "The model cannot be loaded: {detail}",
    Cause.NEVER_FITS: "This needs more memory than the device can ever give: {detail}",
    Cause.GRANT_LAPSED: "The grant was not used in time and has lapsed; ask again.",
    Cause.RUN_TOO_LONG: "The request ran longer than lane '{detail}' allows and was ended.",
}


class SchedulerServicer(rpc.SchedulerServiceServicer):
    """Translates for the shell."""

    def __init__(
        self, shell: SchedulerShell, signer: Signer, settings: Settings, lanes: frozenset[str]
    ) -> None:
        self._shell = shell
        self._signer = signer
        self._settings = settings
        self._lanes = lanes
        self._watched = Watched(shell)

    async def Admit(
        self, request: pb.AdmitRequest, context: Context
    ) -> AsyncIterator[pb.AdmitResponse]:
        admitted = _request(request, self._signer)
        self._check_lane(request.lane)
        with self._shell.admit(admitted) as mailbox:
            while True:
                notice = await mailbox.get()
                if isinstance(notice, Refuse):
                    raise _fault(notice)
                yield self._response(admitted, notice)

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(status=status_message(self._shell, steady_ms()))

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=self._shell.models())

    async def LoadModel(
        self, request: pb.LoadModelRequest, context: Context
    ) -> AsyncIterator[pb.LoadModelResponse]:
        _check_model(request.model)
        tier = _tier(request.tier)
        wanted = Request(_permit_id(), request.model, tier, steady_ms(), load_only=True)
        told = pb.LoadModelResponse(state=models_pb2.MODEL_STATE_COLD)
        with self._shell.admit(wanted) as mailbox:
            while True:
                notice = await mailbox.get()
                if isinstance(notice, Refuse):
                    raise _fault(notice)
                told = _load_response(notice) or told
                yield told
                if isinstance(notice, Grant):
                    return

    async def UnloadModel(
        self, request: pb.UnloadModelRequest, context: Context
    ) -> pb.UnloadModelResponse:
        await self._shell.unload(request.model, request.drain_ms, force=request.force)
        return pb.UnloadModelResponse()

    async def WatchStatus(
        self, request: pb.WatchStatusRequest, context: Context
    ) -> AsyncIterator[pb.WatchStatusResponse]:
        while True:
            shown = self._watched.latest()
            yield pb.WatchStatusResponse(status=shown.status)
            await asyncio.sleep(shown.good_until_s - time.monotonic())
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SILENCE_S):
                    await shown.changed.wait()

    async def Hold(
        self, request: pb.HoldRequest, context: Context
    ) -> AsyncIterator[pb.HoldResponse]:
        lane, holder = request.lane, request.holder
        _check_holder(lane, holder)
        self._check_lane(lane)
        if not request.hold_s:
            raise Fault(Reason.INVALID_REQUEST, "Say for how long: 'hold_s' is 0.")
        with self._shell.hold(lane, holder, request.hold_s * 1000) as mailbox:
            while (change := await mailbox.get()).expires_ms:
                yield pb.HoldResponse(
                    held=change.running == 0,
                    running=change.running,
                    expires_unix_ms=change.expires_ms,
                )

    async def ReleaseHold(
        self, request: pb.ReleaseHoldRequest, context: Context
    ) -> pb.ReleaseHoldResponse:
        _check_holder(request.lane, request.holder)
        self._shell.release_hold(request.lane, request.holder)
        return pb.ReleaseHoldResponse()

    async def PlanResidency(
        self, request: pb.PlanResidencyRequest, context: Context
    ) -> pb.PlanResidencyResponse:
        plan = await self._shell.plan(request.model, _tier(request.tier))
        return pb.PlanResidencyResponse(
            evictions=[
                pb.PlanResidencyResponse.Eviction(
                    model_key=going.key, freed_mib=going.freed_mib, cost=going.cost, why=going.why
                )
                for going in plan.evictions
            ],
            feasible=plan.feasible,
            explanation=plan.explanation,
            needed_mib=plan.needed_mib,
            headroom_mib=plan.headroom_mib,
        )

    def _check_lane(self, lane: str) -> None:
        if not lane:
            return  # the model's own
        known = self._lanes | {model.lane for model in self._shell.models()}
        if lane not in known:
            raise Fault(
                Reason.INVALID_REQUEST,
                f"There is no lane '{lane}'; there are: {', '.join(sorted(known)) or 'none'}.",
            )

    def _response(self, request: Request, notice: Notice) -> pb.AdmitResponse:
        match notice:
            case Queued(_, position):
                token = self._signer.sign(_place(request))
                queued = pb.AdmitResponse.Queued(position=position, resume_token=token)
                return pb.AdmitResponse(queued=queued)
            case Loading(_, model, progress):
                loading = pb.AdmitResponse.Loading(model_key=model, progress=progress)
                return pb.AdmitResponse(loading=loading)
            case Grant():
                return pb.AdmitResponse(granted=self._granted(request, notice))
            case Refuse():
                raise _fault(notice)

    def _granted(self, request: Request, grant: Grant) -> pb.AdmitResponse.Granted:
        return pb.AdmitResponse.Granted(
            permit_id=grant.permit_id,
            address=grant.address,
            model_key=grant.model,
            instance_id=grant.instance_id,
            queue_wait_ms=max(0, grant.waited_ms),
            transient_lease_id=grant.lease_id,
            transient_mib=grant.lease_mib,
            use_within_ms=self._settings.use_within_ms,
            max_run_ms=grant.max_run_ms,
            resume_token=self._signer.sign(_place(request)),
        )


def _request(request: pb.AdmitRequest, signer: Signer) -> Request:
    _check_model(request.model)
    key = request.fairness_key.strip()
    if len(key) > _MOST_KEY_CHARS:
        long = f"A fairness_key has at most {_MOST_KEY_CHARS} characters; this one has {len(key)}."
        raise Fault(Reason.INVALID_REQUEST, long)
    if request.minimum_transient_mib > (request.preferred_transient_mib or _MOST_MIB):
        much = "minimum_transient_mib must be at most preferred_transient_mib."
        raise Fault(Reason.INVALID_REQUEST, much)
    new = Request(
        permit_id=_permit_id(),
        model=request.model,
        tier=_tier(request.tier),
        arrived_ms=steady_ms(),
        lane=request.lane,
        key=key,
        try_acquire=request.try_acquire,
        parent=request.parent_permit_id,
        preferred_mib=min(request.preferred_transient_mib, _MOST_MIB),
        minimum_mib=min(request.minimum_transient_mib, _MOST_MIB),
        tokens=request.prompt_tokens + request.max_output_tokens if request.prompt_tokens else 0,
        request_id=request.request_id[:128],
    )
    return _resumed(new, request.resume_token, signer) if request.resume_token else new


def _check_model(name: str) -> None:
    if not name:
        raise _bad_model("Say which model: 'model' is empty.")
    if len(name) > _MOST_KEY_CHARS:
        raise _bad_model(
            f"A model's name has at most {_MOST_KEY_CHARS} characters; this has {len(name)}."
        )


def _bad_model(message: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, message, metadata={"param": "model"})


def _check_holder(lane: str, holder: str) -> None:
    if not lane or not 0 < len(holder) <= _MOST_KEY_CHARS:
        raise Fault(
            Reason.INVALID_REQUEST,
            f"A hold needs a lane, and a holder of 1 to {_MOST_KEY_CHARS} characters.",
        )


def _place(request: Request) -> str:
    """What a resume token says: good for this model and tier, and for no better place."""
    return f"{request.arrived_ms} {request.tier.name} {request.model}"


def _resumed(new: Request, token: str, signer: Signer) -> Request:
    arrived = (signer.check(token) or "").partition(" ")[0]
    old = replace(new, arrived_ms=min(int(arrived or 0), new.arrived_ms))
    if signer.check(token) != _place(old):
        raise Fault(
            Reason.INVALID_REQUEST,
            "The resume_token is not one of this scheduler's for this model and tier; "
            "ask again without it.",
        )
    return old


def _tier(tier: int) -> Tier:
    if tier == common_pb2.TIER_UNSPECIFIED:
        return Tier.FREE
    try:
        return Tier(tier)
    except ValueError:
        raise Fault(Reason.INVALID_REQUEST, f"There is no tier {tier}.") from None


def _permit_id() -> str:
    return secrets.token_urlsafe(16)


def _fault(refusal: Refuse) -> Fault:
    sentence = _SENTENCES[refusal.cause].format(detail=refusal.detail)
    after = refusal.retry_after_ms
    return Fault(
        Reason(refusal.cause.value),
        sentence,
        retry_after_s=None if after is None else math.ceil(after / 100) / 10,
    )


def _load_response(notice: Notice) -> pb.LoadModelResponse | None:
    """None: nothing new, but a sign of life."""
    if isinstance(notice, Grant):
        return pb.LoadModelResponse(state=models_pb2.MODEL_STATE_READY, progress=1.0)
    if isinstance(notice, Loading):
        return pb.LoadModelResponse(state=models_pb2.MODEL_STATE_LOADING, progress=notice.progress)
    return None
