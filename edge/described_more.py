"""What the routes take and answer on which models embed, rank, tokenise, or pretend."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from edge import embeddings, rerank, tokenize
from edge.documenting import Described, Operation, posted, said
from edge.simulated import RunAnswer, RunBody

RUNS_PATH = "/v1/simulated/runs"


def _embeddings() -> Operation:
    done = said(embeddings.EmbeddingList, "The vectors.")
    return posted("create_embedding", "Embed texts", "vectors", embeddings.EmbeddingBody, done)


def _features() -> Operation:
    vector = {"type": "array", "items": {"type": "number"}}
    done: dict[str, Any] = {
        "description": "The vector, or the beginning of it.",
        "content": {"application/json": {"schema": vector}},
    }
    summary = "Embed one text, as a former API has it"
    return posted("create_features", summary, "vectors", embeddings.FeatureBody, done)


def _rerank(version: str) -> Operation:
    done = said(rerank.RerankAnswer, "The documents, best first.")
    summary = "Rank documents by their relevance"
    return posted(f"create_rerank_{version}", summary, "vectors", rerank.RerankBody, done)


def _tokenize() -> Operation:
    done = said(tokenize.TokenizeAnswer, "The tokens.")
    return posted("tokenize", "See the tokens of a text", "tokens", tokenize.TokenizeBody, done)


def _detokenize() -> Operation:
    done = said(tokenize.DetokenizeAnswer, "The text.")
    summary = "Turn tokens back into text"
    return posted("detokenize", summary, "tokens", tokenize.DetokenizeBody, done)


def _runs() -> Operation:
    done = said(RunAnswer, "The work is over; memory of the simulated card was held for a while.")
    summary = "Pretend to work on a simulated model"
    return posted("create_simulated_run", summary, "simulated", RunBody, done)


MORE: Mapping[str, Described] = MappingProxyType(
    {
        embeddings.PATH: Described(
            _embeddings, (embeddings.EmbeddingBody, embeddings.EmbeddingList)
        ),
        embeddings.FEATURES_PATH: Described(_features, (embeddings.FeatureBody,)),
        **{
            path: Described(
                partial(_rerank, path.split("/")[1]), (rerank.RerankBody, rerank.RerankAnswer)
            )
            for path in rerank.PATHS
        },
        tokenize.PATH: Described(_tokenize, (tokenize.TokenizeBody, tokenize.TokenizeAnswer)),
        tokenize.BACK_PATH: Described(
            _detokenize, (tokenize.DetokenizeBody, tokenize.DetokenizeAnswer)
        ),
        RUNS_PATH: Described(_runs, (RunBody, RunAnswer)),
    }
)
"""By path."""
