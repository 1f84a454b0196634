"""What tests of Anthropic's dialect share: its official client, and what peers say."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic

from chassis.errors import Fault
from cohabit.llm.v1 import llm_pb2
from tests.edge_kit import House, finish


def client_of(house: House) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(
        base_url=house.url,
        api_key="none",
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False),
    )


def ended(
    reason: llm_pb2.FinishReason.ValueType, stop: str = "", said: str = ""
) -> llm_pb2.GenerateResponse:
    last = finish(said)
    last.finish.reason, last.finish.stop = reason, stop
    return last


def says(*messages: llm_pb2.GenerateResponse) -> Any:
    async def generate(_request: Any, _context: Any) -> AsyncIterator[Any]:
        for message in messages:
            yield message

    return generate


def refuses(fault: Fault) -> Any:
    async def admit(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise fault
        yield

    return admit


def called(index: int, name: str, *pieces: str) -> list[llm_pb2.GenerateResponse]:
    first = llm_pb2.ToolCallDelta(index=index, id=f"t{index}", name=name)
    rest = [llm_pb2.ToolCallDelta(index=index, arguments_json=piece) for piece in pieces]
    return [llm_pb2.GenerateResponse(tool_calls=[delta]) for delta in (first, *rest)]
