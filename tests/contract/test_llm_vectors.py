"""The engine of vectors on real (tiny, random) encoders: what its callers may rely on."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from chassis.errors import Fault, Reason
from services.llm.engine_vectors import LlamaVectors
from services.llm.vectors import Pooling, VectorKind, VectorSpec
from tests.engine_kit import DEADLINE_S, FREED_WITHIN_S, until
from tests.tiny_bert import CLS, SEP, make_tiny_bert
from tests.tiny_gguf import make_tiny_gguf

COSINE = 0.99999
"""What docs/adr/0014-vectors.md states about neighbours."""
TEXTS = ["the cat sat on the mat", "a", "the moon is in the river", "tide", "dog dog dog " * 20]


def loaded(spec: VectorSpec) -> LlamaVectors:
    engine = LlamaVectors(spec)
    engine.load(lambda _: None)
    return engine


def in_call(engine: LlamaVectors) -> int:
    """Requests whose texts are in the native call that runs."""
    return len(engine._loop._running) if engine._loop else 0


async def refused(work: Coroutine[Any, Any, object]) -> Fault:
    with pytest.raises(Fault) as caught:
        await work
    return caught.value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[LlamaVectors]:
    engine = loaded(VectorSpec(make_tiny_bert(folder / "mean.gguf"), threads=1, waiting=3))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Iterator[LlamaVectors]:
    path = make_tiny_bert(folder / "rank.gguf", pooling=gguf.PoolingType.RANK)
    engine = loaded(VectorSpec(path, VectorKind.RERANKER, threads=1))
    yield engine
    engine.close()


async def test_vectors_are_of_unit_length_and_in_order(engine: LlamaVectors) -> None:
    whole = await engine.embed(TEXTS, 0)
    assert whole.vectors.shape == (5, 64)
    assert whole.vectors.dtype == np.dtype(np.float32)
    assert np.linalg.norm(whole.vectors, axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    assert whole.prompt_tokens == sum(engine.count_tokens(text) for text in TEXTS)
    back = await engine.embed(TEXTS[::-1], 0)
    cosines = whole.vectors @ back.vectors[::-1].T
    assert np.diag(cosines) == pytest.approx(np.ones(5), abs=1 - COSINE)
    assert np.abs(cosines - np.diag(np.diag(cosines))).max() < 0.99
    assert engine.inside == 0


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS, Pooling.LAST])
@pytest.mark.parametrize("decodes", [False, True])
async def test_a_vector_does_not_depend_on_its_neighbours(
    folder: Path, pooling: Pooling, decodes: bool
) -> None:
    path = make_tiny_gguf(folder / "d.gguf") if decodes else make_tiny_bert(folder / "e.gguf")
    engine = loaded(VectorSpec(path, pooling=pooling, threads=1, context_tokens=100))
    words = " ".join(TEXTS).split()
    rng = np.random.default_rng(7)
    texts = [" ".join(rng.choice(words, size)) for size in rng.integers(1, 20, 120)]
    try:
        together = (await engine.embed(texts, 0)).vectors
        alone = np.concatenate([(await engine.embed([text], 0)).vectors for text in texts])
    finally:
        engine.close()
    assert (together * alone).sum(axis=1).min() >= COSINE
    if pooling is not Pooling.CLS or not decodes:  # whose first token sees no other
        assert len(np.unique(together.round(3), axis=0)) > 100


async def test_poolings_differ_and_cls_is_the_files_own(folder: Path) -> None:
    path = make_tiny_bert(folder / "cls.gguf", pooling=gguf.PoolingType.CLS)
    found = {}
    for pooling in Pooling:
        engine = loaded(VectorSpec(path, pooling=pooling, threads=1))
        found[pooling] = (await engine.embed([TEXTS[0]], 0)).vectors[0]
        assert engine.facts.pooling == (pooling if pooling is not Pooling.AUTO else "cls")
        engine.close()
    assert found[Pooling.AUTO] @ found[Pooling.CLS] == pytest.approx(1, abs=1e-5)
    for one, other in ((Pooling.CLS, Pooling.MEAN), (Pooling.MEAN, Pooling.LAST)):
        assert found[one] @ found[other] < 0.99


async def test_fewer_dimensions_are_the_first_ones_and_unit_again(engine: LlamaVectors) -> None:
    whole = (await engine.embed(TEXTS[:1], 0)).vectors[0]
    cut = (await engine.embed(TEXTS[:1], 16)).vectors[0]
    assert cut == pytest.approx(whole[:16] / np.linalg.norm(whole[:16]), abs=1e-5)
    assert (await engine.embed(TEXTS[:1], 64)).vectors.shape == (1, 64)
    fault = await refused(engine.embed(TEXTS[:1], 65))
    assert (fault.reason, fault.metadata["param"]) == (Reason.INVALID_REQUEST, "dimensions")
    assert "from 1 to 64" in fault.message


async def test_tokens_are_taken_as_they_are(engine: LlamaVectors) -> None:
    ids = engine.tokenizer.encode(TEXTS[0], add_special=True)
    assert (ids[0], ids[-1]) == (CLS, SEP)
    text, tokens = (await engine.embed([TEXTS[0], tuple(ids)], 0)).vectors
    assert text @ tokens >= COSINE
    named = engine.tokenizer.encode("the [SEP] cat", add_special=True)
    assert named.count(SEP) == 1  # what is written in a text is text
    fault = await refused(engine.embed([(CLS, 10_000)], 0))
    assert "the token 10000" in fault.message
    assert fault.metadata["param"] == "input[0]"


@pytest.mark.parametrize(
    ("texts", "reason", "param", "says"),
    [
        (["a", ""], Reason.INVALID_REQUEST, "input[1]", "is empty"),
        (["a", ()], Reason.INVALID_REQUEST, "input[1]", "no tokens"),
        (["a", "cat " * 127], Reason.CONTEXT_LENGTH_EXCEEDED, "input[1]", "has 129"),
        (["a" * 9000], Reason.CONTEXT_LENGTH_EXCEEDED, "input[0]", "8192 bytes"),
        ([], Reason.INVALID_REQUEST, "input", "from 1 to 256"),
        (["a"] * 257, Reason.INVALID_REQUEST, "input", "from 1 to 256"),
    ],
)
async def test_what_cannot_be_embedded_is_named(
    engine: LlamaVectors, texts: list[Any], reason: Reason, param: str, says: str
) -> None:
    fault = await refused(engine.embed(texts, 0))
    assert (fault.reason, fault.metadata["param"]) == (reason, param)
    assert says in fault.message


async def test_requests_share_calls_and_come_back_apart(engine: LlamaVectors) -> None:
    alone = [(await engine.embed([text], 0)).vectors[0] for text in TEXTS[:3]]
    together = await asyncio.gather(*(engine.embed([text] * 9, 0) for text in TEXTS[:3]))
    for one, many in zip(alone, together, strict=True):
        assert (many.vectors @ one).min() >= COSINE


async def test_too_many_requests_are_refused(engine: LlamaVectors) -> None:
    asked = [asyncio.create_task(engine.embed(TEXTS[4:] * 200, 0)) for _ in range(4)]
    done = await asyncio.gather(*asked, return_exceptions=True)
    (fault,) = (one for one in done if isinstance(one, Fault))
    assert (fault.reason, fault.retry_after_s) == (Reason.QUEUE_FULL, 1.0)
    assert engine.inside == 0


async def test_who_leaves_frees_its_place_and_costs_the_others_nothing(folder: Path) -> None:
    # Large enough that one call takes far longer than the bound.
    path = make_tiny_bert(folder / "slow.gguf", context=512, layers=24, embd=256)
    spec = VectorSpec(path, threads=1, batch_tokens=1024, context_tokens=512)
    engine = loaded(spec)
    texts = ["the moon is in the water of a river and the tide waits on it " * 8] * 64
    try:
        expected = (await engine.embed(TEXTS[:2], 0)).vectors
        first = asyncio.create_task(engine.embed(texts[:4], 0))
        await until(lambda: in_call(engine) == 1)
        long = asyncio.create_task(engine.embed(texts, 0))
        other = asyncio.create_task(engine.embed(TEXTS[:2], 0))
        await first
        await until(lambda: in_call(engine) == 2)
        long.cancel()
        took_s = await until(long.done)
        assert long.cancelled()
        assert took_s < FREED_WITHIN_S
        assert not other.done()
        async with asyncio.timeout(DEADLINE_S):
            vectors = (await other).vectors
        assert (vectors * expected).sum(axis=1).min() >= COSINE
        assert engine.inside == 0
        assert engine.healthy
    finally:
        engine.close()


async def test_a_rank_head_scores_pairs(reranker: LlamaVectors) -> None:
    documents = ["the cat sat", "moon", "a river", "the cat sat"]
    ranked = await reranker.rerank("cat", documents, 0)
    assert sorted(index for index, _ in ranked.results) == [0, 1, 2, 3]
    scores = [score for _, score in ranked.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert scores[0] - scores[-1] > 1e-3
    by_index = dict(ranked.results)
    assert by_index[0] == pytest.approx(by_index[3], abs=1e-4)
    assert (await reranker.rerank("cat", documents, 2)).results == ranked.results[:2]
    other = dict((await reranker.rerank("tide", documents, 0)).results)
    assert any(abs(other[i] - by_index[i]) > 1e-3 for i in by_index)


async def test_a_pair_is_marked_as_the_model_knows_it(reranker: LlamaVectors) -> None:
    tokenizer = reranker.tokenizer
    cat, moon = (tokenizer.encode(text, add_special=False) for text in ("cat", "moon"))
    assert tokenizer.encode_pair("cat", "moon") == [CLS, *cat, SEP, *moon, SEP]


async def test_a_pair_that_is_too_long_or_empty_is_named(reranker: LlamaVectors) -> None:
    fault = await refused(reranker.rerank("cat", ["moon", "cat " * 125], 0))
    assert fault.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert fault.metadata["param"] == "documents[1]"
    fault = await refused(reranker.rerank("", ["moon"], 0))
    assert fault.metadata["param"] == "query"


async def test_a_reranker_without_a_head_scores_by_cosine_if_told_to(folder: Path) -> None:
    path = make_tiny_bert(folder / "plain.gguf")
    with pytest.raises(Fault, match="has no rank head") as caught:
        loaded(VectorSpec(path, VectorKind.RERANKER, threads=1))
    assert caught.value.reason is Reason.MODEL_FAILED
    engine = loaded(VectorSpec(path, VectorKind.RERANKER, Pooling.MEAN, threads=1))
    try:
        ranked = await engine.rerank("the cat sat", ["moon", "the cat sat", "the cat"], 0)
    finally:
        engine.close()
    index, score = ranked.results[0]
    assert index == 1
    assert score == pytest.approx(1, abs=1e-4)


async def test_a_model_does_only_what_it_is_for(
    engine: LlamaVectors, reranker: LlamaVectors, folder: Path
) -> None:
    for work in (engine.rerank("cat", ["moon"], 0), reranker.embed(["cat"], 0)):
        assert (await refused(work)).reason is Reason.NOT_IMPLEMENTED
    with pytest.raises(Fault, match="set its `kind` to reranker"):
        loaded(VectorSpec(folder / "rank.gguf", threads=1))


def test_a_context_that_the_model_was_not_trained_for_is_refused(folder: Path) -> None:
    path = make_tiny_bert(folder / "c.gguf", context=64)
    with pytest.raises(Fault, match="1 to 64, not 65"):
        loaded(VectorSpec(path, context_tokens=65, threads=1))
    with pytest.raises(Fault, match="is not there"):
        loaded(VectorSpec(folder / "nowhere.gguf", threads=1))


async def test_closing_ends_what_waits(folder: Path) -> None:
    engine = loaded(VectorSpec(make_tiny_bert(folder / "end.gguf"), threads=1))
    waiting = asyncio.create_task(engine.embed(TEXTS[4:] * 256, 0))
    await until(lambda: engine.inside == 1)
    await asyncio.to_thread(engine.close)
    fault = await refused(asyncio.wait_for(waiting, DEADLINE_S))
    assert fault.reason is Reason.SERVICE_UNAVAILABLE
    assert not engine.healthy
