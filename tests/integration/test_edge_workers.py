"""A whole house whose edge has workers: `cohabit up`, real answers, and an orderly end."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx

from tests.integration.house import running, until

CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 8,
    "temperature": 0,
}


async def test_a_house_with_workers_answers_mends_itself_and_ends(tmp_path: Path) -> None:
    with running(tmp_path, edge={"workers": 2}) as house:
        parent = house.process("edge")
        assert len(parent.children()) == 2
        async with httpx.AsyncClient(base_url=house.url, timeout=60, trust_env=False) as client:
            answers = [client.post("/v1/chat/completions", json=CHAT) for _ in range(12)]
            said = {
                (answer.status_code, answer.json()["choices"][0]["message"]["content"])
                for answer in await asyncio.gather(*answers)
            }
            assert len(said) == 1
            assert said.pop()[0] == 200
            status = (await client.get("/status")).json()
            assert status["edge"]["workers"] == 2

        parent.children()[0].send_signal(signal.SIGSEGV)

        async def whole_again() -> bool:
            async with httpx.AsyncClient(base_url=house.url, trust_env=False) as client:
                health = (await client.get("/health")).json()
            return health["status"] == "ok" and len(parent.children()) == 2

        await until(whole_again, 60, "two workers")
    # `running` has seen that nothing outlived the launcher.
    assert "edge did not stop in time" not in house.log.read_text()
