"""Child processes: started with their input, reaped, and let go of."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from hosting.child import Child

DEADLINE_S = 10.0
ECHO = "import sys; sys.stderr.write(sys.stdin.readline()); sys.exit(7)"


async def started(code: str, stdin: bytes = b"") -> Child:
    return await Child.start((sys.executable, "-c", code), os.environ, stdin, 1024)


async def test_input_words_and_status() -> None:
    child = await started(ECHO, b"hello\n")
    assert await asyncio.wait_for(child.stderr.read(), DEADLINE_S) == b"hello\n"
    await asyncio.wait_for(child.exited.wait(), DEADLINE_S)
    assert child.returncode == 7
    child.send_signal(9)  # gone already: nobody else is hit
    child.close()


async def test_a_child_that_reads_nothing_is_no_error() -> None:
    child = await started("pass", b"x" * 50_000)
    await asyncio.wait_for(child.exited.wait(), DEADLINE_S)
    assert child.returncode == 0
    child.close()


async def test_more_than_a_pipe_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 60000 bytes"):
        await started(f"open({str(tmp_path / 'ran')!r}, 'w')", b"x" * 60_001)
    assert not (tmp_path / "ran").exists()


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        await Child.start(("/no/such/program",), os.environ, b"", 1024)
