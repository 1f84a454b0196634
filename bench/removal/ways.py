"""The ways of having a round's pictures cut out: processes of one side, or a house over gRPC."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.removal.figures import Shot
from chassis.channel import open_channel
from chassis.process import child_env
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc

_LOAD_S = 180.0
"""Both sides compile with numba at their first start."""
_ROUND_S = 1800.0
_IN_FLIGHT = 2


class Way(Protocol):
    """A way to have pictures cut out."""

    async def cut(self, paths: Sequence[Path]) -> Shot:
        """All of them, timed from the first to the last."""


@dataclass(frozen=True, slots=True)
class Crew:
    """How a side is run."""

    side: str
    processes: int
    in_flight: int
    """Pictures at once, in each process."""
    threads: int
    """Of each process's network; 0: its default."""


class Processes:
    """A way: each process takes every n-th picture."""

    def __init__(self, crew: Crew, hands: Sequence[asyncio.subprocess.Process]) -> None:
        self._crew, self._hands = crew, hands

    async def cut(self, paths: Sequence[Path]) -> Shot:
        """See `Way`."""
        began_s = time.perf_counter()
        told = await asyncio.gather(
            *(
                _tell(hand, {"paths": shares, "in_flight": self._crew.in_flight}, _ROUND_S)
                for hand, shares in zip(self._hands, self._shares(paths), strict=True)
            )
        )
        wall_s = time.perf_counter() - began_s
        cpu_s = sum(one["cpu_s"] for one in told)
        return Shot(len(paths), wall_s, cpu_s, sum(one["answer_bytes"] for one in told))

    def _shares(self, paths: Sequence[Path]) -> list[list[str]]:
        step = len(self._hands)
        return [[str(path) for path in paths[first::step]] for first in range(step)]


class ThroughHouse:
    """A way: `RemoveBackground` of the service in a whole house, two calls at once."""

    def __init__(
        self, stub: "matte_pb2_grpc.MatteServiceAsyncStub", output: matte_pb2.ImageOutput
    ) -> None:
        self._stub, self._output = stub, output

    async def cut(self, paths: Sequence[Path]) -> Shot:
        """See `Way`."""
        left = iter([path.read_bytes() for path in paths])
        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._some(left)) for _ in range(_IN_FLIGHT)]
        wall_s = time.perf_counter() - began_s
        return Shot(len(paths), wall_s, None, sum(task.result() for task in tasks))

    async def _some(self, left: Iterator[bytes]) -> int:
        done = 0
        for picture in left:
            request = matte_pb2.RemoveBackgroundRequest(
                image=common_pb2.Media(data=picture), output=self._output
            )
            answer = await self._stub.RemoveBackground(request, timeout=_ROUND_S)
            done += len(answer.image.data)
        return done


@asynccontextmanager
async def processes(
    crew: Crew, kind: str, model: Path, env: Mapping[str, str]
) -> AsyncIterator[Processes]:
    """They are loaded, and wait for pictures until the end of the block."""
    async with AsyncExitStack() as stack:
        hands = []
        for _ in range(crew.processes):
            hands.append(await _hand(crew, kind, model, env))
            stack.push_async_callback(_gone, hands[-1])
        for hand in hands:
            await _heard(hand, _LOAD_S)
        yield Processes(crew, hands)


@asynccontextmanager
async def through_house(address: str, kind: str) -> AsyncIterator[ThroughHouse]:
    """Over a channel to the matting service at `address`, until the end of the block."""
    wanted = matte_pb2.ImageFormat.Value(f"IMAGE_FORMAT_{kind.upper()}")
    output = matte_pb2.ImageOutput(format=wanted)
    async with open_channel(address) as channel:
        yield ThroughHouse(matte_pb2_grpc.MatteServiceStub(channel), output)


async def _hand(
    crew: Crew, kind: str, model: Path, env: Mapping[str, str]
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "bench.removal.work",
        crew.side, str(crew.threads), kind, str(model),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**child_env(), **env},
    )  # fmt: skip


async def _tell(
    hand: asyncio.subprocess.Process, message: Mapping[str, Any], within_s: float
) -> dict[str, Any]:
    assert hand.stdin is not None
    hand.stdin.write(json.dumps(message).encode() + b"\n")
    return await _heard(hand, within_s)


async def _heard(hand: asyncio.subprocess.Process, within_s: float) -> dict[str, Any]:
    assert hand.stdout is not None
    async with asyncio.timeout(within_s):
        line = await hand.stdout.readline()
    if not line:
        raise RuntimeError("a process of the bench ended; what it printed says why")
    answer: dict[str, Any] = json.loads(line)
    return answer


async def _gone(hand: asyncio.subprocess.Process) -> None:
    if hand.returncode is None:
        hand.kill()
    await hand.wait()
