"""The house of a fuzz run, and that it is at rest: nothing runs, waits, or is held for nobody."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import httpx

from bench.rest import left_after
from tests.integration.house import REAL_MODEL, House, running
from tests.integration.picture_house import picture_sections
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
    pictures = picture_sections(models)
    with running(folder, llm={"models": configured}, edge=edge, **pictures) as house:
        yield house


async def rests(house: House) -> None:
    """Fails unless, soon, nothing is left of any request: no permit, no place, no lease but those
    of loaded models, and no cell of a KV cache but those of prefixes that may stay. Jobs that are
    open are cancelled."""
    _cancel_jobs(house)
    scheduler, broker, llm = map(house.address, ("scheduler", "broker", "llm"))
    left = await left_after(REST_S, scheduler, broker, llm, WRITERS)
    assert left == [], left


def _cancel_jobs(house: House) -> None:
    with httpx.Client(base_url=house.url, timeout=REST_S, trust_env=False) as http:
        while True:
            told = http.get("/v1/jobs", params={"state": "queued,running", "limit": 200}).json()
            open_jobs = [job for job in told["data"] if not job["cancel_requested"]]
            if not open_jobs:
                return
            for job in open_jobs:
                http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
