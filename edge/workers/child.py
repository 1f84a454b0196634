"""A worker as its parent has it: a process, a link to call it, a way to hand it connections."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from edge.workers.handover import way
from edge.workers.link import Link

SLOT_ENV = "COHABIT_EDGE_WORKER"
SOCKETS_ENV = "COHABIT_EDGE_SOCKETS"


@dataclass(frozen=True, slots=True)
class Birth:
    """What a worker is born with."""

    slot: int
    link: socket.socket
    way: socket.socket

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Self:
        """As its parent has put it there. Raises KeyError: nobody has."""
        link, handover = (int(number) for number in env[SOCKETS_ENV].split(","))
        return cls(int(env[SLOT_ENV]), socket.socket(fileno=link), socket.socket(fileno=handover))


@dataclass(slots=True)
class Worker:
    """One that runs."""

    process: "subprocess.Popen[bytes]"
    link: Link
    way: socket.socket

    @classmethod
    async def start(
        cls, slot: int, argv: Sequence[str], env: Mapping[str, str], link: Link
    ) -> Self:
        """Call from the main thread, for its death signal. Raises OSError."""
        our_link, its_link = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        our_way, its_way = way()
        with its_link, its_way:
            given = (its_link.fileno(), its_way.fileno())
            numbers = ",".join(map(str, given))
            own = {SLOT_ENV: str(slot), SOCKETS_ENV: numbers}
            try:
                process = _popen(argv, {**env, **own}, given)
            except OSError:
                our_link.close()
                our_way.close()
                raise
        await link.connect(our_link)
        return cls(process, link, our_way)

    async def ended(self) -> int:
        """Its exit status, once it has one; negative: a signal."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        watch = os.pidfd_open(self.process.pid)
        loop.add_reader(watch, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(watch)
            os.close(watch)
        return self.process.wait()

    def close(self) -> None:
        """Forget it."""
        self.link.close()
        self.way.close()


def _popen(
    argv: Sequence[str], env: Mapping[str, str], given: Sequence[int]
) -> "subprocess.Popen[bytes]":
    # Not uvloop's own: that runs Python in the child between fork and exec.
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env, pass_fds=given)
