"""What the edge costs: the null model's answers are OpenAI's, and figures are medians."""

import asyncio
import json

import pytest

from bench.edge_cost.asks import ASKS, WORDS, Ask, events, whole_answer
from bench.edge_cost.load import burst
from bench.edge_cost.report import MOST_RATIO, Cost, Row, cost_of

TEXT = "".join(WORDS)


def test_both_answers_say_the_same() -> None:
    told = [json.loads(event[6:]) for event in b"".join(events()).split(b"\n\n")[:-2]]
    assert len(told) == len(WORDS) + 1
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in told) == TEXT
    assert told[-1]["choices"][0]["finish_reason"] == "stop"
    assert events()[-1].endswith(b"data: [DONE]\n\n")
    whole = json.loads(whole_answer())
    assert whole["choices"][0]["message"]["content"] == TEXT
    assert whole["usage"]["completion_tokens"] == len(WORDS)


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.name)
def test_a_request_is_whole(ask: Ask) -> None:
    head, _, body = ask.request.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    assert json.loads(body)["stream"] is ask.stream


def test_figures_are_medians_and_a_fifth_is_the_limit() -> None:
    rounds = [Cost(cpu, 10 * cpu, 20 * cpu, 100 / cpu) for cpu in (1.0, 9.0, 2.0)]
    assert cost_of(rounds) == Cost(2.0, 20.0, 40.0, 50.0)
    ours, rival = Cost(1, 1, 1, 1), Cost(5, 1, 1, 1)
    assert Row("chat", 1, ours, rival, MOST_RATIO).passes
    assert not Row("chat", 1, ours, rival, MOST_RATIO + 0.001).passes


def _answer(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_answer(b"200 OK", whole_answer()), ""),
        (_answer(b"500 Oops", b"{}"), "http/1.1 500 oops"),
        (_answer(b"200 OK", b"{}"), "not the answer of the null model"),
        (b"HTTP/1.1 200 OK\r\n\r\nzz\r\n", "invalid literal"),
        (b"", "IncompleteReadError"),
    ],
    ids=["good", "refused", "another", "no frames", "gone"],
)
async def test_a_proxy_that_does_not_answer_is_one_error(answer: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(answer)
                if not answer:
                    return
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        if not said:
            ran = await burst(port, ASKS[0], count=7)
            assert len(ran.each_ms) == 7
            return
        with pytest.raises(RuntimeError, match=said):
            await burst(port, ASKS[0], count=7)
