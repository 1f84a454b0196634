"""POST /v1/embeddings in OpenAI's dialect, and the former /api/v1/feature-extraction.

Pure: bytes in, a `Wanted` out; vectors in, bytes out.
"""

import base64
import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.models.v1 import models_pb2
from edge import json_body
from edge.errors import bad_field
from edge.single import Parse, Wanted

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryCall

    from chassis.admission import Turn
    from cohabit.llm.v1.llm_pb2_grpc import LanguageModelServiceAsyncStub as Engine

PATH = "/v1/embeddings"
FEATURES_PATH = "/api/v1/feature-extraction"
MOST_TEXTS = 256
MOST_TOKENS = 131_072
DEFAULT_FEATURES = 256

_Token = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Tokens = Annotated[list[_Token], Meta(max_length=MOST_TOKENS)]
_Unread = Annotated[Raw | UnsetType, Meta(description="Accepted and ignored.")]


class EmbeddingBody(msgspec.Struct, forbid_unknown_fields=True):
    """Texts to embed; a list holds texts, or one text's tokens, or lists of tokens."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    input: str | Annotated[list[str | _Token | _Tokens], Meta(min_length=1, max_length=MOST_TOKENS)]
    dimensions: Annotated[int, Meta(ge=1, le=2**20)] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: _Unread = UNSET


class Embedding(msgspec.Struct):
    """One vector; in base64 its bytes are float32, little-endian."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingUsage(msgspec.Struct):
    """Tokens counted."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct):
    """One vector a text, in the order of the texts."""

    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
    object: Literal["list"] = "list"


class FeatureBody(msgspec.Struct, forbid_unknown_fields=True):
    """A text to embed, as a former API has it."""

    text: Annotated[str, Meta(min_length=1)]
    num_features: Annotated[int, Meta(ge=1, le=2**20)] = DEFAULT_FEATURES
    """The first so many of the vector, at most."""
    model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """Default: the one that `edge.default_embedding_model` names."""


_decoder = msgspec.json.Decoder(EmbeddingBody)
_feature_decoder = msgspec.json.Decoder(FeatureBody)
_encode = msgspec.json.Encoder().encode


def ask(body: bytes) -> Wanted:
    """`edge.single.Parse` of OpenAI's dialect."""
    asked = json_body.decode(_decoder, body)
    request = pb.EmbedRequest(dimensions=asked.dimensions or 0)
    _fill(request, asked.input)
    in_base64 = asked.encoding_format == "base64"

    def written(answer: pb.EmbedResponse, model: str) -> bytes:
        vectors = (vector.values for vector in answer.vectors)
        data = [
            Embedding(i, _base64(values) if in_base64 else list(values))
            for i, values in enumerate(vectors)
        ]
        usage = EmbeddingUsage(answer.prompt_tokens, answer.prompt_tokens)
        return _encode(EmbeddingList(data, model, usage))

    single = isinstance(asked.input, str) or isinstance(asked.input[0], int)
    names = {"input[0]": "input"} if single else {}
    return _wanted(asked.model, request, written, names)


def feature_extraction(default_model: str) -> Parse:
    """`edge.single.Parse` of the former dialect, which may name no model."""

    def parse(body: bytes) -> Wanted:
        asked = json_body.decode(_feature_decoder, body)

        def written(answer: pb.EmbedResponse, _model: str) -> bytes:
            return _encode(_first(answer.vectors[0].values, asked.num_features))

        request = pb.EmbedRequest(texts=[asked.text])
        return _wanted(asked.model or default_model, request, written, {"input[0]": "text"})

    return parse


def _wanted(model: str, request: pb.EmbedRequest, written: Any, names: dict[str, str]) -> Wanted:
    def call(engine: "Engine", turn: "Turn") -> "UnaryUnaryCall[Any, Any]":
        request.model = turn.model_key
        return engine.Embed(request, timeout=turn.timeout_s, metadata=turn.metadata)

    return Wanted(model, models_pb2.MODEL_KIND_EMBEDDING, call, written, names)


def _fill(request: pb.EmbedRequest, given: str | list[str | int | list[int]]) -> None:
    """Raises Fault for a list of several kinds of things, or too many."""
    if isinstance(given, str):
        request.texts.append(given)
    elif all(isinstance(item, int) for item in given):
        request.token_ids.add().ids.extend(cast("list[int]", given))
    elif len(given) > MOST_TEXTS:
        raise bad_field("input", f"`input` must have at most {MOST_TEXTS} items; send fewer.")
    elif all(isinstance(item, str) for item in given):
        request.texts.extend(cast("list[str]", given))
    elif all(isinstance(item, list) for item in given):
        for tokens in cast("list[list[int]]", given):
            request.token_ids.add().ids.extend(tokens)
    else:
        raise bad_field("input", "`input` must hold texts, or tokens, or lists of tokens alone.")


def _base64(values: Iterable[float]) -> str:
    floats = array("f", values)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


def _first(values: Sequence[float], count: int) -> list[float]:
    """The first `count` of a vector, of unit length again."""
    cut = list(values[:count])
    length = math.sqrt(math.fsum(value * value for value in cut))
    return [value / length for value in cut] if length else cut
