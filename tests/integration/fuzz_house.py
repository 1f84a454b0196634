"""The house of a fuzz run, and that it is at rest: nothing runs, waits, or is held for nobody."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf

from chassis.channel import open_channel
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from tests.integration.house import REAL_MODEL, House, running, until
from tests.tiny_bert import make_tiny_bert
from tests.tiny_gguf import make_tiny_gguf

WRITERS = ("tiny", "smollm2")
REST_S = 10.0
_LEGACY = ("generate", "generate_large", "autocomplete", "summarization", "engines")


@contextmanager
def fuzz_house(folder: Path) -> Iterator[House]:
    """One model of every kind, all routes open."""
    models = folder / "models"
    models.mkdir()
    make_tiny_gguf(models / "tiny.gguf", context=4096)
    make_tiny_bert(models / "bert.gguf")
    make_tiny_bert(models / "rank.gguf", pooling=gguf.PoolingType.RANK)
    configured = {
        "tiny": {"path": "tiny.gguf", "context_tokens": 4096, "places": 4},
        "smollm2": {"path": str(REAL_MODEL), "context_tokens": 512, "places": 2},
        "bert": {"path": "bert.gguf", "kind": "embedding"},
        "rank": {"path": "rank.gguf", "kind": "reranker"},
    }
    edge = {
        "default_embedding_model": "bert",
        "legacy_models": dict.fromkeys(_LEGACY, "tiny"),
        "keepalive_s": 0.2,
    }
    with running(folder, llm={"models": configured}, edge=edge) as house:
        yield house


async def rests(house: House) -> None:
    """Fails unless, soon, nothing is left of any request: no permit, no place, no lease but those
    of loaded models, and no cell of a KV cache but those of prefixes that may stay."""
    await until(lambda: _rests(house), REST_S, "rest")
    models = (await house.models()).values()
    leases = sorted(lease.lease_id for lease in await house.leases())
    assert leases == sorted(i.lease_id for model in models for i in model.instances)
    for key in WRITERS:
        held = await occupancy(house, key)
        assert held.free_sequences + held.idle_prefixes == held.sequences, held
        assert held.used_cells == held.idle_cells, held


async def occupancy(house: House, key: str) -> llm_pb2.GetOccupancyResponse:
    """What an engine of the model is doing, and what its cache holds."""
    async with open_channel(house.address("llm")) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub
        stub = llm_pb2_grpc.LanguageModelServiceStub(channel)
        return await stub.GetOccupancy(llm_pb2.GetOccupancyRequest(model=key), timeout=5)


async def _rests(house: House) -> bool:
    status = await house.status()
    models = await house.models()
    inside = [await occupancy(house, key) for key in WRITERS]
    at_engines = [p for m in models.values() for i in m.instances for p in i.running_permit_ids]
    queued = sum(tier.waiting for tier in status.tiers)
    busy = sum(one.running + one.waiting + one.parked for one in inside)
    return (status.permits_in_use, len(status.running), queued, len(at_engines), busy) == (0,) * 5
