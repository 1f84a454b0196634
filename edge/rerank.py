"""POST /v1/rerank and /v2/rerank: documents by their relevance, in the shape Jina and Cohere share.

Pure: bytes in, a `Wanted` out; scores in, bytes out.
"""

import uuid
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.models.v1 import models_pb2
from edge import json_body
from edge.single import Wanted

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryCall

    from chassis.admission import Turn
    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Engine

PATHS = ("/v1/rerank", "/v2/rerank")
MOST_DOCUMENTS = 256


class RerankDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A document; of other fields nothing would be read."""

    text: str


class RerankBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to rank, and by which question."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    query: Annotated[str, Meta(min_length=1)]
    documents: Annotated[list[str | RerankDocument], Meta(min_length=1, max_length=MOST_DOCUMENTS)]
    top_n: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    return_documents: bool | None = None
    user: Annotated[Raw | UnsetType, Meta(description="Accepted and ignored.")] = UNSET


class RerankResult(msgspec.Struct, omit_defaults=True):
    """A document's place in the request, and how relevant it is."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None
    """Where `return_documents` asked for it."""


class RerankUsage(msgspec.Struct):
    """Tokens counted, the query's once a document."""

    prompt_tokens: int
    total_tokens: int


class RerankAnswer(msgspec.Struct):
    """Best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: RerankUsage


_decoder = msgspec.json.Decoder(RerankBody)
_encode = msgspec.json.Encoder().encode


def ask(body: bytes) -> Wanted:
    """`edge.single.Parse` of this dialect."""
    asked = json_body.decode(_decoder, body)
    texts = [one if isinstance(one, str) else one.text for one in asked.documents]
    # More than there are is all there are.
    top_n = min(asked.top_n or 0, len(texts))
    request = pb.RerankRequest(query=asked.query, documents=texts, top_n=top_n)

    def call(engine: "Engine", turn: "Turn") -> "UnaryUnaryCall[Any, Any]":
        request.model = turn.model_key
        return engine.Rerank(request, timeout=turn.timeout_s, metadata=turn.metadata)

    def written(answer: pb.RerankResponse, model: str) -> bytes:
        results = [RerankResult(one.index, one.relevance_score) for one in answer.results]
        for result in results if asked.return_documents else ():
            result.document = RerankDocument(texts[result.index])
        usage = RerankUsage(answer.prompt_tokens, answer.prompt_tokens)
        return _encode(RerankAnswer(f"rerank-{uuid.uuid4().hex}", model, results, usage))

    return Wanted(asked.model, models_pb2.MODEL_KIND_RERANKER, call, written)
