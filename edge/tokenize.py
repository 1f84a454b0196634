"""POST /tokenize and /detokenize, in the shape of llama.cpp's server.

They need no place and no model in memory: the service that hosts a model knows its tokens. Where
there is only one such model, the request need not name it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import grpc
import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.channel import call_metadata
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.models.v1 import models_pb2
from edge import chat_request, errors, json_body
from edge.chat_body import MOST_MESSAGES, ChatMessage
from edge.disconnect import while_connected
from edge.entrance import Entrance
from edge.errors import bad_field
from edge.keys.caller import Caller
from edge.roster import by_name

if TYPE_CHECKING:
    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Service

PATH = "/tokenize"
BACK_PATH = "/detokenize"
MOST_TOKENS = 131_072
_ANSWER_S = 60.0
_WITH_TOKENS = (
    models_pb2.MODEL_KIND_LANGUAGE,
    models_pb2.MODEL_KIND_EMBEDDING,
    models_pb2.MODEL_KIND_RERANKER,
)

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class TokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A text, as `content` or as `text`, or the messages of a conversation."""

    model: _Name | None = None
    content: str | None = None
    text: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MOST_MESSAGES)] | None = (
        None
    )
    add_special: bool = False
    """Begin and end it as the model wants a text to."""
    parse_special: bool = True
    """Names of control tokens are those tokens; of messages, never."""
    with_pieces: bool = False
    """Answer with the text of each token."""


class TokenPiece(msgspec.Struct):
    """A token and its text; bytes where it is no whole character."""

    id: int
    piece: str | list[int]


class TokenizeAnswer(msgspec.Struct):
    """The tokens, with their texts if they were asked for."""

    tokens: list[int | TokenPiece]


class DetokenizeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Tokens to turn back into text."""

    tokens: Annotated[list[_Token], Meta(max_length=MOST_TOKENS)]
    model: _Name | None = None


class DetokenizeAnswer(msgspec.Struct):
    """Their text."""

    content: str


Question = pb.TokenizeRequest | pb.DetokenizeRequest


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, understood."""

    model: str
    """Empty: the only one there is."""
    put: "Callable[[Service, str], Awaitable[bytes]]"
    """Asks about the model of this key, and writes the answer. Raises AioRpcError."""


_decoder = msgspec.json.Decoder(TokenizeBody)
_back_decoder = msgspec.json.Decoder(DetokenizeBody)
_encode = msgspec.json.Encoder().encode


def tokenize(body: bytes) -> Asked:
    """What POST /tokenize asks. Raises Fault."""
    asked = json_body.decode(_decoder, body)
    request = _request(asked)

    async def put(service: "Service", key: str) -> bytes:
        request.model = key
        answer = await service.Tokenize(request, timeout=_ANSWER_S, metadata=call_metadata())
        if not asked.with_pieces:
            return _encode(TokenizeAnswer([*answer.token_ids]))
        pieces = zip(answer.token_ids, answer.pieces, strict=True)
        return _encode(TokenizeAnswer([TokenPiece(i, _shown(piece)) for i, piece in pieces]))

    return Asked(asked.model or "", put)


def detokenize(body: bytes) -> Asked:
    """What POST /detokenize asks. Raises Fault."""
    asked = json_body.decode(_back_decoder, body)
    request = pb.DetokenizeRequest(token_ids=asked.tokens)

    async def put(service: "Service", key: str) -> bytes:
        request.model = key
        answer = await service.Detokenize(request, timeout=_ANSWER_S, metadata=call_metadata())
        return _encode(DetokenizeAnswer(answer.text))

    return Asked(asked.model or "", put)


def _request(asked: TokenizeBody) -> pb.TokenizeRequest:
    given = [name for name in ("content", "text", "messages") if getattr(asked, name) is not None]
    if len(given) != 1:
        said = " and ".join(f"`{name}`" for name in given) or "none of them"
        raise bad_field(
            given[-1] if given else "content",
            f"Send one of `content`, `text` and `messages`; the request has {said}.",
        )
    request = pb.TokenizeRequest(add_special=asked.add_special, parse_special=asked.parse_special)
    if asked.messages is None:
        request.text = asked.content if asked.content is not None else asked.text or ""
    else:
        chat = _encode({"model": asked.model or "any", "messages": asked.messages})
        request.conversation.CopyFrom(chat_request.parse(chat).generate.conversation)
    return request


def _shown(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


@dataclass(frozen=True, slots=True)
class TokensEndpoint:
    """The ASGI application of one of the two routes."""

    entrance: Entrance
    listing: Callable[[], Awaitable[Sequence[models_pb2.Model]]]
    addresses: Mapping[str, str]
    """gRPC targets of the model services, by name."""
    services: "Channels[Service]"
    parse: Callable[[bytes], Asked]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request) as guest:
            raw = await guest.room.read(request)
            asked = await asyncio.to_thread(self.parse, raw)
            body = await while_connected(receive, self._answer(asked, guest.caller))
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _answer(self, asked: Asked, caller: Caller) -> bytes:
        model = _found(asked.model, await self.listing(), caller)
        address = self.addresses.get(model.service)
        if address is None:
            message = f"The model `{model.key}` is hosted by a service that the edge cannot reach."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        async with self.services.to(address) as service:
            try:
                return await asked.put(service, model.key)
            except grpc.aio.AioRpcError as error:
                raise fault_of(error, model.service) from None


def _found(name: str, listed: Sequence[models_pb2.Model], caller: Caller) -> models_pb2.Model:
    """The model of that name, or the only one. Raises Fault."""
    known = [
        model
        for model in listed
        if model.kind in _WITH_TOKENS and caller.may_ask(model.key, (model,))
    ]
    if name:
        behind = by_name(listed).get(name, ())
        caller.check_model(name, behind)
        if not behind:
            raise errors.model_not_found(name)
        if behind[0].kind not in _WITH_TOKENS:
            raise bad_field("model", f"The model `{name}` has no tokens; name one that reads text.")
        return behind[0]  # twins share their tokens
    if len(known) != 1:
        raise bad_field("model", f"`model` is missing: there are {len(known)} to choose from.")
    return known[0]
