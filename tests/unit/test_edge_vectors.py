"""Bodies of embeddings, rerank and tokens: understood, or refused by the name of a field."""

import base64
import json
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.models.v1 import models_pb2
from edge import embeddings, rerank, tokenize
from edge.single import Wanted, check_kind

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
REFUSALS = {Reason.INVALID_REQUEST, Reason.MODALITY_UNSUPPORTED}
FIELDS: tuple[str, ...] = (
    "model",
    "input",
    "dimensions",
    "query",
    "documents",
    "top_n",
    "text",
    "content",
)
FIELDS += ("messages", "tokens", "num_features", "encoding_format", "with_pieces")
PARSERS: list[Callable[[bytes], object]] = [
    embeddings.ask,
    embeddings.feature_extraction("m"),
    rerank.ask,
    tokenize.tokenize,
    tokenize.detokenize,
]
FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def asked(wanted: Wanted) -> Any:
    """What the engine is asked."""
    requests: list[Any] = []

    class Engine:
        def Embed(self, request: Any, **_: Any) -> None:
            requests.append(request)

        Rerank = Embed

    class Turn:
        model_key, timeout_s, metadata = "m-1", 1.0, ()

    engine: Any = Engine()
    turn: Any = Turn()
    wanted.call(engine, turn)
    return requests[0]


def vectors(*rows: list[float]) -> pb.EmbedResponse:
    return pb.EmbedResponse(
        vectors=[pb.EmbedResponse.Vector(values=row) for row in rows], prompt_tokens=5
    )


@pytest.mark.parametrize(
    ("given_input", "texts", "tokens"),
    [
        ("a", ["a"], []),
        (["a", "b"], ["a", "b"], []),
        ([1, 2], [], [[1, 2]]),
        ([[1], [2, 3]], [], [[1], [2, 3]]),
    ],
)
def test_each_form_of_input(given_input: Any, texts: list[str], tokens: list[list[int]]) -> None:
    request = asked(embeddings.ask(body(input=given_input, dimensions=7, user="x")))
    assert list(request.texts) == texts
    assert [list(one.ids) for one in request.token_ids] == tokens
    assert (request.dimensions, request.model) == (7, "m-1")


@given(FLOATS)
def test_base64_brings_back_every_bit(row: list[float]) -> None:
    answer = vectors(row, row[::-1])
    raw = embeddings.ask(body(input="a", encoding_format="base64")).body(answer, "m-1")
    told = json.loads(raw)
    for item, vector in zip(told["data"], answer.vectors, strict=True):
        assert array("f", base64.b64decode(item["embedding"])).tolist() == list(vector.values)
    assert told["model"] == "m-1"
    assert told["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


def test_features_are_the_first_ones_of_unit_length() -> None:
    wanted = embeddings.feature_extraction("usual")(json.dumps({"text": "a"}).encode())
    assert (wanted.model, wanted.names) == ("usual", {"input[0]": "text"})
    parse = embeddings.feature_extraction("usual")
    cut = parse(body(text="a", num_features=2)).body(vectors([3.0, 4.0, 12.0]), "m-1")
    assert json.loads(cut) == pytest.approx([0.6, 0.8])
    assert json.loads(parse(body(text="a")).body(vectors([0.0, 0.0]), "m-1")) == [0, 0]


def test_documents_come_back_where_they_are_wanted() -> None:
    wanted = rerank.ask(
        body(query="q", documents=["a", {"text": "b"}], top_n=9, return_documents=True)
    )
    request = asked(wanted)
    assert (list(request.documents), request.top_n, request.query) == (["a", "b"], 2, "q")
    result = pb.RerankResponse.Result(index=1, relevance_score=0.5)
    told = json.loads(wanted.body(pb.RerankResponse(results=[result]), "m-1"))
    assert told["results"] == [{"index": 1, "relevance_score": 0.5, "document": {"text": "b"}}]


def test_a_model_of_another_kind_is_not_woken() -> None:
    kinds = (models_pb2.MODEL_KIND_EMBEDDING, models_pb2.MODEL_KIND_LANGUAGE)
    models = [models_pb2.Model(key=f"m{kind}", kind=kind) for kind in kinds]
    check_kind(kinds[0], models[:1])
    with pytest.raises(Fault, match="kind language"):
        check_kind(kinds[0], models)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from(PARSERS))
def test_whatever_comes_is_understood_or_refused(
    fields: dict[str, Any], parse: Callable[[bytes], object]
) -> None:
    refused: Fault | None = None
    try:
        parse(json.dumps(fields).encode())
    except Fault as fault:
        refused = fault
    assert refused is None or refused.reason in REFUSALS
