"""The language model service admits for its callers by the same rules as the edge."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2
from services.llm.clients import Scheduler
from tests.edge_kit import MODEL, Peers


async def test_a_lapsed_grant_costs_another_turn_and_the_granted_model_is_asked(
    tmp_path: Path,
) -> None:
    peers = Peers(tmp_path)  # type: ignore[abstract]

    async def lapsed_at_first(request: Any, context: Any) -> AsyncIterator[Any]:
        if len(peers.generates) == 1:
            raise Fault(Reason.PERMIT_REVOKED, "The permit of this request has ended.")
        async for message in peers.says_hello(request, context):
            yield message

    peers.generate = lapsed_at_first
    async with peers.scheduler(), peers.engine():
        scheduler = Scheduler(peers.scheduler_address)
        request = llm_pb2.GenerateRequest(model=MODEL)
        said = [message.text async for message in scheduler.generate(request)]
        await scheduler.close()
    assert "".join(said) == "Hello"
    assert len(peers.admits) == 2
    assert {asked.model for asked in peers.generates} == {"smol-a"}
