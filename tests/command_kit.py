"""The command as people run it: a process of its own, with a terminal or without one."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chassis.process import child_env

ROOT = Path(__file__).parents[1]
DEADLINE_S = 120.0


@dataclass
class Terminal:
    """A command that believes to talk to a person."""

    process: asyncio.subprocess.Process
    fd: int
    text: str = ""
    more: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> None:
        try:
            data = os.read(self.fd, 65_536)
        except OSError:  # the other end is gone
            data = b""
        self.text += data.decode(errors="replace")
        if not data:
            asyncio.get_running_loop().remove_reader(self.fd)
        self.more.set()

    async def until(self, pattern: str, since: int = 0) -> int:
        """Wait for words on the screen; where they ended. Colours and controls are not words."""
        async with asyncio.timeout(DEADLINE_S):
            while (found := re.search(pattern, self.text[since:])) is None:
                self.more.clear()
                await self.more.wait()
        return since + found.end()

    async def ended(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)


@dataclass(frozen=True)
class Command:
    """`cohabit` with a configuration."""

    config: Path

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "cli", *words, "--config", str(self.config)]

    async def run(self, *words: str) -> tuple[int | None, str, str]:
        """Exit status, stdout, stderr; no terminal anywhere."""
        process = await asyncio.create_subprocess_exec(
            *self.words(*words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=child_env(),
            cwd=ROOT,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    @asynccontextmanager
    async def on_terminal(self, *words: str, columns: int = 160) -> AsyncIterator[Terminal]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = await asyncio.create_subprocess_exec(
            *self.words(*words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**child_env(), "TERM": "xterm-256color"},
            cwd=ROOT,
        )
        os.close(theirs)
        terminal = Terminal(process, ours)
        asyncio.get_running_loop().add_reader(ours, terminal.take)
        try:
            yield terminal
        finally:
            asyncio.get_running_loop().remove_reader(ours)
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(ours)
