"""llama-server's engine (xllamacpp, prebuilt) in a process of its own, over its own HTTP.

    python -P -m bench.streams.rival MODEL THREADS STREAMS CONTEXT_TOKENS

Prints the URL it listens at, and serves until it is ended.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chassis.process import child_env, die_with_parent

_LOAD_S = 60.0


@asynccontextmanager
async def rival(
    model: Path, *, threads: int, streams: int, context_tokens: int
) -> AsyncIterator[str]:
    """Its base URL, until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "bench.streams.rival",
        str(model), str(threads), str(streams), str(context_tokens),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=child_env(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_LOAD_S):
            while not (line := await process.stdout.readline()).startswith(b"http"):
                if not line:
                    raise RuntimeError("the rival ended before it served")
        yield line.decode().strip()
    finally:
        process.kill()
        await process.wait()


def _serve(model: str, threads: int, streams: int, context_tokens: int) -> None:
    import xllamacpp  # noqa: PLC0415 - a hundred megabytes, and only in this process

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_parallel, params.n_ctx = streams, streams * context_tokens
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.port = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    die_with_parent()
    _serve(sys.argv[1], *map(int, sys.argv[2:]))
