"""Starting a child process by exec, with nothing run between.

uvloop's subprocesses are forked, and run Python and the fork handlers of every library in the
child: beside gRPC's threads that crashes the child now and then, before it is anything.
`subprocess.Popen` goes by vfork, where no handler runs.
"""

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_STDIN_BYTES = 60_000  # what an empty pipe surely takes without waiting


@dataclass(slots=True)
class Child:
    """A running process; `exited` is set when it is gone and reaped."""

    process: "subprocess.Popen[bytes]"
    stderr: asyncio.StreamReader
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    _transport: asyncio.ReadTransport | None = None

    @classmethod
    async def start(
        cls, argv: Sequence[str], env: Mapping[str, str], stdin: bytes | None, line_bytes: int
    ) -> "Child":
        """Start `argv` with `stdin` to read (None: `tell` brings it later); call from the main
        thread, for its death signal.

        Raises OSError, and ValueError when `stdin` is longer than a pipe holds.
        """
        if stdin is not None:
            _check_length(stdin)
        child = cls(_popen(argv, env), asyncio.StreamReader(limit=line_bytes))
        child._reap(asyncio.get_running_loop())
        if stdin is not None:
            child.tell(stdin)
        await child._connect()
        return child

    def tell(self, stdin: bytes) -> None:
        """All that it is to read. Raises ValueError when that is longer than a pipe holds."""
        _check_length(stdin)
        assert self.process.stdin is not None  # noqa: S101 - asked for as a pipe
        with contextlib.suppress(BrokenPipeError), self.process.stdin as pipe:
            pipe.write(stdin)

    @property
    def returncode(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self.process.returncode

    def send_signal(self, number: int) -> None:
        """Signal the process, if it is still there."""
        self.process.send_signal(number)

    def close(self) -> None:
        """Read no more, even if a grandchild still holds the other end."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        if self._transport is not None:
            self._transport.close()

    async def _connect(self) -> None:
        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(self.stderr)

        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(protocol, self.process.stderr)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        def wait() -> None:
            self.process.wait()
            with contextlib.suppress(RuntimeError):  # the loop has ended before the child
                loop.call_soon_threadsafe(self.exited.set)

        name = f"reap-{self.process.pid}"
        threading.Thread(target=wait, name=name, daemon=True).start()


def _check_length(stdin: bytes) -> None:
    if len(stdin) > _STDIN_BYTES:
        raise ValueError(f"expected at most {_STDIN_BYTES} bytes for a child, got {len(stdin)}")


def _popen(argv: Sequence[str], env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=env,
    )
