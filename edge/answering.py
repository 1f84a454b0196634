"""A route on which a language model answers, in any dialect: from the body to the last event.

A raw ASGI endpoint: parsing and answering are all that a request pays for. A dialect is a function
from a body to an `Asked`: what the request means (one llm.v1 GenerateRequest, whatever the
dialect), and how its answer is written. It never sees the scheduler, an engine or a socket.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from chassis.admission import Admission, Turn, engine_crashed
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Queued
from cohabit.llm.v1 import llm_pb2
from edge import errors
from edge.disconnect import while_connected
from edge.entrance import Entrance, Guest
from edge.measure import Measure, check_answers
from edge.roster import Roster
from edge.signals.first_token import FirstToken
from edge.speech import PARAM
from edge.sse import Note, Patience, Source, stream_events
from edge.whole import WholeBody

if TYPE_CHECKING:
    import grpc

    from chassis.admission import Start
    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Engine

    GenerateCall = grpc.aio.UnaryStreamCall[llm_pb2.GenerateRequest, llm_pb2.GenerateResponse]

_READ_AT_ONCE_BYTES = 256 * 1024

T = TypeVar("T")
Generated = Queued | Loading | llm_pb2.GenerateResponse
Messages = AsyncGenerator[Generated, None]


@dataclass(slots=True)
class Served:
    """Who serves a request, known once it is granted."""

    model: str
    """The key of the model, which may be another than the name that was asked for."""
    created_s: int
    """Unix time."""
    queue_wait_ms: int = 0


class EventWriter(Protocol):
    """One answer as server-sent events."""

    def feed(self, message: llm_pb2.GenerateResponse) -> bytes:
        """The events for one message, together; empty when it says nothing for the client."""

    def end(self) -> bytes:
        """The last events, once every choice has finished."""


class BodyWriter(Protocol):
    """One answer as one JSON body."""

    def feed(self, message: llm_pb2.GenerateResponse) -> None:
        """Take one message in."""

    def body(self) -> bytes:
        """The body, once every choice has finished."""


def _untouched(messages: Messages) -> Messages:
    return messages


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, understood. Just one of the writers is made, when the first message is there."""

    model: str
    """As the client named it."""
    generate: llm_pb2.GenerateRequest
    stream: bool
    events: Callable[[Served], EventWriter]
    whole: Callable[[Served], BodyWriter]
    through: Callable[[Messages], Messages] = _untouched
    """What its messages pass on their way to the writer, for a dialect that may end them."""
    prompt: str = "messages"
    """The field that holds what is to be answered, for the refusal of one that is too long."""
    otherwise: str = ""
    """The model to take when there is none of that name; empty: there must be one."""


def unstreamed(_served: Served) -> NoReturn:
    """`Asked.events` of a dialect whose parser refuses streams: it is never called."""
    raise AssertionError("a stream that was refused is answered")


Parse = Callable[[bytes], Asked]
"""A dialect: a body → what it asks. Raises Fault, its `param` the field at fault."""


@dataclass(frozen=True, slots=True)
class Answering:
    """Runs requests on language models; shared by all dialects."""

    admission: "Admission[Engine]"
    entrance: Entrance
    roster: Roster
    measure: Measure
    patience: Patience

    async def _events(self, asked: Asked, served: Served, guest: Guest) -> "Messages":
        """Everything that happens to a request, to its engine's last message. Raises Fault."""
        generate = asked.generate
        generate.tier, generate.cache_scope = guest.tier, guest.owner
        behind = await self.roster.behind(asked.model, guest.caller)
        check_answers(behind)
        tokens = await self.measure.prompt_tokens(behind, generate)
        ask = Ask(asked.model, guest.tier, generate.max_tokens, tokens, key=guest.key)
        return self.admission.run(ask, _generating(generate, served))

    async def _known(self, asked: Asked) -> Asked:
        """With the model that is there, of the two that it may name."""
        if not asked.otherwise or await self.roster.knows(asked.model):
            return asked
        return replace(asked, model=asked.otherwise, otherwise="")

    async def answer(self, asked: Asked, guest: Guest, request: Request, send: Send) -> None:
        """Answer `request`, whose body has been read. Raises Fault before the first byte."""
        served = Served(asked.model, int(time.time()))
        if asked.stream:
            source = self._as_sse(asked, served, guest)
            await stream_events(source, self.patience, request.receive, send)
            return
        body = await while_connected(request.receive, self._as_body(asked, served, guest))
        whole = WholeBody(body, "application/json", self.patience.stall_s)
        await whole(request.scope, request.receive, send)

    async def _as_sse(self, asked: Asked, served: Served, guest: Guest) -> Source:
        writer: EventWriter | None = None
        asked, progress = await self._known(asked), _Progress(asked, served)
        with _in_words_of(asked):
            async with aclosing(asked.through(await self._events(asked, served, guest))) as events:
                async for event in events:
                    if not isinstance(event, llm_pb2.GenerateResponse):
                        yield _note(event)
                        continue
                    if event.HasField("prefill"):
                        yield Note(f"reading the prompt, {_done(event.prefill)}")
                    progress.see(event)
                    writer = writer or asked.events(served)
                    yield writer.feed(event)
        progress.check()
        if writer is not None:
            yield writer.end()

    async def _as_body(self, asked: Asked, served: Served, guest: Guest) -> bytes:
        writer: BodyWriter | None = None
        asked, progress = await self._known(asked), _Progress(asked, served)
        with _in_words_of(asked):
            async with aclosing(asked.through(await self._events(asked, served, guest))) as events:
                async for event in events:
                    if isinstance(event, llm_pb2.GenerateResponse):
                        progress.see(event)
                        writer = writer or asked.whole(served)
                        writer.feed(event)
        progress.check()
        assert writer is not None  # noqa: S101 - without a finish there has been a Fault
        return writer.body()


@dataclass(frozen=True, slots=True)
class AnswerEndpoint:
    """The ASGI application of one route."""

    answering: Answering
    parse: Parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.answering.entrance.enter(request) as guest:
            raw = await guest.room.read(request)
            asked = await in_passing(len(raw), lambda: self.parse(raw))
            await self.answering.answer(asked, guest, request, send)


async def in_passing(size_bytes: int, work: Callable[[], T]) -> T:
    """`work`, elsewhere if what it reads takes too long for the loop, which serves everybody."""
    if size_bytes <= _READ_AT_ONCE_BYTES:
        return work()
    return await asyncio.to_thread(work)


class _Progress:
    """What is seen of an answer on its way, whatever its dialect."""

    __slots__ = ("_first", "_left", "_served")

    def __init__(self, asked: Asked, served: Served) -> None:
        self._left, self._first = max(1, asked.generate.choices), FirstToken()
        self._served = served

    def see(self, message: llm_pb2.GenerateResponse) -> None:
        """The next message."""
        if not self._first.seen:
            self._first.see(message, self._served.model)
        self._left -= message.HasField("finish")

    def check(self) -> None:
        """No message comes any more. Raises Fault when a choice has not finished."""
        if self._left > 0:
            raise engine_crashed()


def _generating(
    request: llm_pb2.GenerateRequest, served: Served
) -> "Start[Engine, llm_pb2.GenerateResponse]":
    def start(engine: "Engine", turn: Turn) -> "GenerateCall":
        served.model, served.queue_wait_ms = turn.model_key, turn.queue_wait_ms
        request.model = turn.model_key
        return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

    return start


@contextmanager
def _in_words_of(asked: Asked) -> Iterator[None]:
    """Faults from the house are raised as the client's."""
    try:
        yield
    except Fault as fault:
        raise _for_caller(fault, asked) from None


def _for_caller(fault: Fault, asked: Asked) -> Fault:
    """The fault in the words of the request."""
    if fault.reason is Reason.MODEL_NOT_FOUND:
        return errors.model_not_found(asked.model)
    if fault.reason is Reason.CONTEXT_LENGTH_EXCEEDED and PARAM not in fault.metadata:
        told = {**fault.metadata, PARAM: asked.prompt}
        return Fault(fault.reason, fault.message, metadata=told)
    return fault


def _note(event: Queued | Loading) -> Note:
    if isinstance(event, Queued):
        return Note(f"queued behind {event.position}")
    return Note(f"loading the model, {event.progress:.0%}")


def _done(prefill: llm_pb2.PrefillProgress) -> str:
    return f"{prefill.done_tokens} of {prefill.total_tokens} tokens"
