"""A route on which an engine answers once: vectors, scores. From the body to the answer.

A raw ASGI endpoint, as `answering.py` is for answers that come in pieces. A dialect is a function
from a body to a `Wanted`: what is asked of which kind of model, and how the answer is written.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.admission import Admission, Turn
from chassis.errors import Fault, Reason
from chassis.place import Ask
from cohabit.models.v1 import models_pb2
from edge import errors
from edge.disconnect import while_connected
from edge.entrance import Entrance, Guest
from edge.roster import Roster
from edge.speech import PARAM

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryCall

    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Engine

_AT_ONCE_BYTES = 256 * 1024
"""Larger bodies and answers are parsed and written on a thread: the loop serves everybody else."""

A = TypeVar("A")


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
    parse: Parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request) as guest:
            raw = await guest.room.read(request)
            wanted = await _aside(len(raw), lambda: self.parse(raw))
            body = await while_connected(receive, self._answer(wanted, guest))
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _answer(self, wanted: Wanted, guest: Guest) -> bytes:
        check_kind(wanted.kind, await self.roster.behind(wanted.model))
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
            raise renamed(fault, lambda name: wanted.names.get(name, name)) from None
        return await _aside(answer.ByteSize(), lambda: wanted.body(answer, served))


def check_kind(kind: "models_pb2.ModelKind.ValueType", behind: Sequence[models_pb2.Model]) -> None:
    """Raises Fault when a request would wake a model that cannot answer it."""
    for model in behind:
        if model.kind != kind:
            raise errors.bad_field(
                "model",
                f"The model `{model.key}` is of kind {_word(model.kind)}, and this route is for "
                f"models of kind {_word(kind)}.",
            )


def _word(kind: "models_pb2.ModelKind.ValueType") -> str:
    return models_pb2.ModelKind.Name(kind).removeprefix("MODEL_KIND_").lower()


def renamed(fault: Fault, name_of: Callable[[str], str]) -> Fault:
    """The fault with its field as the client calls it; `name_of`: by the engine's name."""
    param = fault.metadata.get(PARAM, "")
    name = name_of(param)
    if name == param:
        return fault
    return Fault(
        fault.reason,
        fault.message.replace(f"`{param}`", f"`{name}`"),
        retry_after_s=fault.retry_after_s,
        metadata={**fault.metadata, PARAM: name},
    )


async def _aside(size_bytes: int, work: Callable[[], A]) -> A:
    return work() if size_bytes <= _AT_ONCE_BYTES else await asyncio.to_thread(work)
