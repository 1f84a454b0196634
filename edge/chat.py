"""POST /v1/chat/completions: from the body to the last event. The dialect is next door.

A raw ASGI endpoint: parsing and answering are all that a request pays for.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.admission import Admission, Turn, engine_crashed
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Queued
from cohabit.llm.v1 import llm_pb2
from edge import chat_request, errors
from edge.chat_request import ChatRequest
from edge.chat_response import Collected, Stream
from edge.disconnect import while_connected
from edge.entrance import Entrance
from edge.measure import Measure, check_answers
from edge.roster import Roster
from edge.sse import Note, Patience, Source, stream_events

if TYPE_CHECKING:
    import grpc

    from chassis.admission import Start
    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Engine

    GenerateCall = grpc.aio.UnaryStreamCall[llm_pb2.GenerateRequest, llm_pb2.GenerateResponse]

_PARSED_AT_ONCE_BYTES = 256 * 1024

Generated = Queued | Loading | llm_pb2.GenerateResponse


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """The route's ASGI application."""

    admission: "Admission[Engine]"
    entrance: Entrance
    roster: Roster
    measure: Measure
    patience: Patience

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request) as guest:
            chat = await _parse(await guest.room.read(request))
            ask = Ask(chat.model, guest.tier, chat.generate.max_tokens, key=guest.key)
            events = self._events(ask, chat)
            if chat.stream:
                source = _as_sse(events, chat)
                await stream_events(source, self.patience, receive, send)
                return
            body = await while_connected(receive, _as_body(events, chat))
            await Response(body, media_type="application/json")(scope, receive, send)

    async def _events(self, ask: Ask, chat: ChatRequest) -> AsyncGenerator[Generated, None]:
        behind = await self.roster.behind(chat.model)
        check_answers(behind)
        tokens = await self.measure.prompt_tokens(behind, chat.generate)
        ask = replace(ask, prompt_tokens=tokens)
        try:
            async with aclosing(self.admission.run(ask, _generating(chat.generate))) as events:
                async for event in events:
                    yield event
        except Fault as fault:
            if fault.reason is Reason.MODEL_NOT_FOUND:
                raise errors.model_not_found(chat.model) from None
            raise


async def _parse(body: bytes) -> ChatRequest:
    """Raises Fault. A large body takes too long for the loop, which serves everybody else."""
    if len(body) <= _PARSED_AT_ONCE_BYTES:
        return chat_request.parse(body)
    return await asyncio.to_thread(chat_request.parse, body)


def _generating(request: llm_pb2.GenerateRequest) -> "Start[Engine, llm_pb2.GenerateResponse]":
    def start(engine: "Engine", turn: Turn) -> "GenerateCall":
        request.model = turn.model_key  # which the answer names, too
        return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

    return start


async def _as_sse(events: AsyncGenerator[Generated, None], chat: ChatRequest) -> Source:
    stream: Stream | None = None
    async with aclosing(events):
        async for event in events:
            if isinstance(event, llm_pb2.GenerateResponse):
                if event.HasField("prefill"):
                    yield Note(f"reading the prompt, {_done(event.prefill)}")
                stream = stream or _stream(chat)
                yield stream.feed(event)
            else:
                yield _note(event)
    if stream is None or stream.finish is None:
        raise engine_crashed()
    yield stream.end()


def _stream(chat: ChatRequest) -> Stream:
    served = chat.generate.model
    return Stream(_new_id(), int(time.time()), served, include_usage=chat.include_usage)


async def _as_body(events: AsyncGenerator[Generated, None], chat: ChatRequest) -> bytes:
    collected = Collected()
    async with aclosing(events):
        async for event in events:
            if isinstance(event, llm_pb2.GenerateResponse):
                collected.feed(event)
    if collected.finish is None:
        raise engine_crashed()
    return collected.body(_new_id(), int(time.time()), chat.generate.model)


def _note(event: Queued | Loading) -> Note:
    if isinstance(event, Queued):
        return Note(f"queued behind {event.position}")
    return Note(f"loading the model, {event.progress:.0%}")


def _done(prefill: llm_pb2.PrefillProgress) -> str:
    return f"{prefill.done_tokens} of {prefill.total_tokens} tokens"


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"
