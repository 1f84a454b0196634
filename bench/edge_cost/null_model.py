"""The null model: the same answer to whoever asks, over gRPC for us and over HTTP for the rival.

    python -P -m bench.edge_cost.null_model FOLDER

In a process of its own, whose work nobody counts. Streams come token by token, as from a model that
decodes; how fast, its name says. It prints the port of its HTTP when it serves.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from bench.edge_cost.asks import events, pace_s_of, whole_answer
from bench.edge_cost.servicer import House
from chassis import log
from chassis.loop import run
from chassis.process import child_env, die_with_parent
from chassis.server import Server
from cohabit.llm.v1 import llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from edge.server import HttpServer

_UP_S = 30.0


def _http() -> ASGIApp:
    """The same as an OpenAI server."""
    whole, told = whole_answer(), events()

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        pace_s = pace_s_of(json.loads(body)["model"])
        stream = pace_s > 0
        kind = b"text/event-stream" if stream else b"application/json"
        headers = [(b"content-type", kind)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in told[:-1] if stream else ():
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await asyncio.sleep(pace_s)
        await send({"type": "http.response.body", "body": told[-1] if stream else whole})

    return app


async def _serve(folder: str) -> None:
    server = Server(("cohabit.scheduler.v1.SchedulerService",), drain_s=0)
    address = f"unix:{folder}/null.sock"
    house = House(address)  # type: ignore[abstract]
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(house, server.grpc)
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(house, server.grpc)
    await server.start(address)
    _, port = await HttpServer(_http(), "127.0.0.1", 0, drain_s=1).start()
    print(port, flush=True)
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class NullModel:
    """One that runs."""

    grpc: str
    """Scheduler and engine, as a gRPC target."""
    url: str
    """The OpenAI server."""


@asynccontextmanager
async def null_model(folder: Path) -> AsyncIterator[NullModel]:
    """Until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "bench.edge_cost.null_model", str(folder),
        stdout=asyncio.subprocess.PIPE, env=child_env(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_UP_S):
            port = int(await process.stdout.readline())
        yield NullModel(f"unix:{folder}/null.sock", f"http://127.0.0.1:{port}/v1")
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    die_with_parent()
    log.configure("null-model", "error")
    run(_serve(sys.argv[1]))
