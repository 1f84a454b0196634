"""cohabit.llm.v1 requests and answers of embedding models and rerankers ↔ the engine's values."""

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from services.llm.vectors import Embedded, Ranked, Text


def texts_of(request: pb.EmbedRequest) -> list[Text]:
    """What to embed. Raises Fault INVALID_REQUEST."""
    if request.texts and request.token_ids:
        raise Fault(
            Reason.INVALID_REQUEST,
            "Send texts or tokens, not both.",
            metadata={"param": "input"},
        )
    return list(request.texts) or [tuple(tokens.ids) for tokens in request.token_ids]


def embed_response(embedded: Embedded) -> pb.EmbedResponse:
    """One message a row."""
    response = pb.EmbedResponse(prompt_tokens=embedded.prompt_tokens)
    for row in embedded.vectors.tolist():
        response.vectors.add().values.extend(row)
    return response


def rerank_response(ranked: Ranked) -> pb.RerankResponse:
    """In the order of the ranking."""
    results = [
        pb.RerankResponse.Result(index=index, relevance_score=score)
        for index, score in ranked.results
    ]
    return pb.RerankResponse(results=results, prompt_tokens=ranked.prompt_tokens)
