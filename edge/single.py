"""A route on which an engine answers once: vectors, scores. From the body to the answer.

A raw ASGI endpoint, as `answering.py` is for answers that come in pieces. A dialect is a function
from a body to a `Wanted`: what is asked of which kind of model, and how the answer is written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from chassis.admission import Admission, Turn
from chassis.errors import Fault, Reason
from chassis.place import Ask
from cohabit.models.v1 import models_pb2
from edge import errors
from edge.answering import in_passing
from edge.choice import kind_word
from edge.disconnect import while_connected
from edge.entrance import Entrance, Guest
from edge.roster import Roster
from edge.whole import WholeBody

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryCall

    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Engine


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request, understood."""

    model: str
    """As the client named it."""
    kind: "models_pb2.ModelKind.ValueType"
    """Of the models that can answer."""
    call: "Callable[[Engine, Turn], UnaryUnaryCall[Any, Any]]"
    body: Callable[[Any, str], bytes]
    """The answer of the engine, and the key of the model that served → the body."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the engine calls a field → what the client calls it, where the two differ."""


Parse = Callable[[bytes], Wanted]
"""A dialect: a body → what is wanted. Raises Fault, its `param` the field at fault."""


@dataclass(frozen=True, slots=True)
class SingleEndpoint:
    """The ASGI application of one route."""

    admission: "Admission[Engine]"
    entrance: Entrance
    roster: Roster
    stall_s: float
    """A client that takes nothing of its answer for this long is left."""
    parse: Parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request) as guest:
            raw = await guest.room.read(request)
            wanted = await in_passing(len(raw), lambda: self.parse(raw))
            body = await while_connected(receive, self._answer(wanted, guest))
            await WholeBody(body, "application/json", self.stall_s)(scope, receive, send)

    async def _answer(self, wanted: Wanted, guest: Guest) -> bytes:
        check_kind(wanted.kind, await self.roster.behind(wanted.model, guest.caller))
        served = wanted.model

        def start(engine: "Engine", turn: Turn) -> "UnaryUnaryCall[Any, Message]":
            nonlocal served
            served = turn.model_key
            return wanted.call(engine, turn)

        ask = Ask(wanted.model, guest.tier, key=guest.key)
        try:
            answer = await self.admission.answer(ask, start)
        except Fault as fault:
            if fault.reason is Reason.MODEL_NOT_FOUND:
                raise errors.model_not_found(wanted.model) from None
            raise errors.renamed(fault, lambda name: wanted.names.get(name, name)) from None
        return await in_passing(answer.ByteSize(), lambda: wanted.body(answer, served))


def check_kind(kind: "models_pb2.ModelKind.ValueType", behind: Sequence[models_pb2.Model]) -> None:
    """Raises Fault when a request would wake a model that cannot answer it."""
    for model in behind:
        if model.kind != kind:
            what, wanted = kind_word(model.kind), kind_word(kind)
            message = f"The model `{model.key}` is of kind {what}; this route is for kind {wanted}."
            raise errors.bad_field("model", message)
