"""POST /v1/simulated/runs: pretended work on a simulated model, with real waiting for its turn.

A dialect of our own, there only in a house with simulated models.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.admission import Admission, Turn, engine_crashed
from chassis.errors import Fault, Reason
from chassis.place import Ask
from cohabit.models.v1 import models_pb2
from cohabit.simulated.v1 import simulated_pb2 as pb
from edge import errors, json_body
from edge.disconnect import while_connected
from edge.entrance import Entrance
from edge.roster import Roster

if TYPE_CHECKING:
    import grpc

    from cohabit.simulated.v1.simulated_pb2_grpc import SimulatedServiceAsyncStub as Engine

    RunCall = grpc.aio.UnaryStreamCall[pb.RunRequest, pb.RunResponse]

SERVICE = "simulated"
_MOST_WORK_MS = 3_600_000


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """Work to pretend."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    work_ms: Annotated[int, Meta(ge=1, le=_MOST_WORK_MS)] | None = None


class RunAnswer(msgspec.Struct):
    """The work is over."""

    model: str
    """The key that served."""
    ran_ms: int
    queue_wait_ms: int
    transient_mib: int
    """Memory that was held beside the model's own."""


_decoder = msgspec.json.Decoder(RunBody)
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RunsEndpoint:
    """The route's ASGI application."""

    admission: "Admission[Engine]"
    entrance: Entrance
    roster: Roster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request) as guest:
            body = json_body.decode(_decoder, await guest.room.read(request))
            behind = await self.roster.behind(body.model, guest.caller)
            _check_simulated(body.model, behind)
            work = self._run(body, Ask(body.model, guest.tier, key=guest.key))
            answer = _encode(await while_connected(receive, work))
        await Response(answer, media_type="application/json")(scope, receive, send)

    async def _run(self, body: RunBody, ask: Ask) -> RunAnswer:
        run = _Run(body.work_ms or 0)
        try:
            async with aclosing(self.admission.run(ask, run.start)) as events:
                async for event in events:
                    if isinstance(event, pb.RunResponse) and event.HasField("done"):
                        run.done = event.done
        except Fault as fault:
            if fault.reason is Reason.MODEL_NOT_FOUND:
                raise errors.model_not_found(body.model) from None
            raise
        return run.answer()


class _Run:
    """One run: how it is begun on the engine that was granted, and what came of it."""

    def __init__(self, work_ms: int) -> None:
        self._work_ms = work_ms
        self._queue_wait_ms = 0
        self.done: pb.RunResponse.Done | None = None

    def start(self, engine: "Engine", turn: Turn) -> "RunCall":
        """Begin it."""
        self._queue_wait_ms = turn.queue_wait_ms
        request = pb.RunRequest(
            model=turn.model_key,
            work_ms=self._work_ms,
            transient_lease_id=turn.transient_lease_id,
            transient_mib=turn.transient_mib,
        )
        return engine.Run(request, timeout=turn.timeout_s, metadata=turn.metadata)

    def answer(self) -> RunAnswer:
        """What to tell the client. Raises Fault when the work came to no end."""
        if self.done is None:
            raise engine_crashed()
        return RunAnswer(
            model=self.done.model,
            ran_ms=self.done.ran_ms,
            queue_wait_ms=self._queue_wait_ms,
            transient_mib=self.done.transient_mib,
        )


def _check_simulated(name: str, behind: Sequence[models_pb2.Model]) -> None:
    if any(model.service not in ("", SERVICE) for model in behind):
        raise errors.bad_field(
            "model", f"The model `{name}` is a real one; only simulated ones pretend to work."
        )
