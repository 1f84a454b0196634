"""The launcher over real processes: restarts, order of stopping, deadlines, no orphans."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from chassis.process import child_env
from cli.console import Refused
from cli.launcher import STOP_S, deadlines
from cli.runlock import run_lock
from cli.up import specs
from edge.config import EdgeConfig

HOST = """
import asyncio, json, sys
from chassis.process import child_env, die_with_parent
from cli.launcher import OWN, Launcher, Spec
from cli.lines import Screen

die_with_parent()
programs = json.loads(sys.argv[1])
specs = [Spec(name, (sys.executable, "-P", "-c", code)) for name, code in programs.items()]
screen = Screen(2, [OWN, *programs])

async def beside():
    screen.line(OWN, "beside")

async def main():
    launcher = Launcher(specs, child_env(), screen, stop_s=float(sys.argv[2]))
    return await launcher.run(beside)

code = asyncio.run(main())
screen.close()
sys.exit(code)
"""
_BEGIN = """
import os, signal, sys
from chassis.process import die_with_parent
die_with_parent()
def say(*words):
    print(*words, flush=True)
"""
POLITE = f"""{_BEGIN}
def bye(*_):
    say("bye")
    sys.exit(0)
signal.signal(signal.SIGTERM, bye)
say("pid", os.getpid())
while True:
    signal.pause()
"""
STUBBORN = f"""{_BEGIN}
signal.signal(signal.SIGTERM, lambda *_: say("no"))
say("pid", os.getpid())
while True:
    signal.pause()
"""
MISCONFIGURED = f"""{_BEGIN}
sys.stderr.write("cohabit.yaml:3: edge.listen: expected host:port\\n")
sys.exit(2)
"""
MISCONFIGURED_SINCE = f"""{_BEGIN}
from pathlib import Path
ran = Path(%(ran)r)
if ran.exists():
    sys.exit(2)
ran.touch()
say("pid", os.getpid())
signal.pause()
"""
CHATTY = f"""{_BEGIN}
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until all is written
say("pid", os.getpid())
sys.stdout.write("y" * 200_000 + chr(10) + "unfinished")
sys.stdout.flush()
signal.sigwait([signal.SIGTERM])
"""


@dataclass
class Host:
    """A launcher in a process of its own, and what it has printed."""

    process: asyncio.subprocess.Process
    seen: list[str] = field(default_factory=list)

    async def expect(self, pattern: str, within_s: float = 15.0) -> re.Match[str]:
        """The next line that matches."""
        assert self.process.stderr is not None
        async with asyncio.timeout(within_s):
            while line := await self.process.stderr.readline():
                self.seen.append(line.decode().rstrip("\n"))
                if match := re.search(pattern, self.seen[-1]):
                    return match
        raise AssertionError(f"no line matches {pattern!r}: {self.seen}")

    async def pids(self, *names: str) -> dict[str, int]:
        """The pids that services print, in whatever order they start."""
        found: dict[str, int] = {}
        while set(found) != set(names):
            match = await self.expect(r"^(\w+) +\| pid (\d+)$")
            found[match[1]] = int(match[2])
        return found

    async def end(self, within_s: float = 15.0) -> int:
        """The exit status; reads what is still printed."""
        with suppress(AssertionError):
            await self.expect(r"(?!)", within_s)
        return await asyncio.wait_for(self.process.wait(), within_s)


@asynccontextmanager
async def host(programs: dict[str, str], stop_s: float = 9.0) -> AsyncIterator[Host]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOST,
        json.dumps(programs),
        str(stop_s),
        stderr=asyncio.subprocess.PIPE,
        env=child_env(),
        limit=2**20,
    )
    try:
        yield Host(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    """Poll a condition of the operating system."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - the kernel sets no event
            await asyncio.sleep(0.01)


async def test_a_killed_service_comes_back_with_growing_delays() -> None:
    async with host({"a": POLITE, "b": POLITE}) as launcher:
        pids = await launcher.pids("a", "b")
        os.kill(pids["a"], signal.SIGKILL)
        await launcher.expect(r"^cohabit \| a was killed by signal 9 .* again in 0\.2 s$")
        second = (await launcher.pids("a"))["a"]
        os.kill(second, signal.SIGKILL)
        await launcher.expect(r"^cohabit \| a was killed by signal 9 .* again in 0\.4 s$")
        third = (await launcher.pids("a"))["a"]
        assert len({pids["a"], second, third}) == 3
        assert not gone(pids["b"])


async def test_services_stop_in_reverse_order_and_nothing_is_left() -> None:
    async with host({"a": POLITE, "b": POLITE, "c": POLITE}) as launcher:
        pids = await launcher.pids("a", "b", "c")
        started = time.monotonic()
        launcher.process.send_signal(signal.SIGINT)
        assert await launcher.end() == 0
        assert time.monotonic() - started < 10.0
        assert [line[0] for line in launcher.seen if line.endswith("| bye")] == ["c", "b", "a"]
        assert all(gone(pid) for pid in pids.values())


async def test_a_stubborn_service_is_killed_at_its_deadline() -> None:
    async with host({"a": POLITE, "b": STUBBORN}, stop_s=1.0) as launcher:
        pids = await launcher.pids("a", "b")
        launcher.process.send_signal(signal.SIGTERM)
        await launcher.expect(r"b did not stop in time; killing it")
        assert await launcher.end() == 0
        assert all(gone(pid) for pid in pids.values())


@pytest.mark.parametrize(
    ("wishes", "all_s", "ends"),
    [
        ([5.0, 0.0, 0.0, 0.0], 9.0, [5.0, 8.0, 8.5, 9.0]),
        ([1.0, 2.0, 0.0], 9.0, [1.0, 3.0, 9.0]),
        ([0.0, 0.0], 1.0, [0.5, 1.0]),
        ([0.0, 0.0], 0.6, [0.3, 0.6]),
        ([5.0, 0.0], 2.0, [1.5, 2.0]),
        ([], 9.0, []),
    ],
)
def test_how_the_time_is_divided(wishes: list[float], all_s: float, ends: list[float]) -> None:
    assert deadlines(wishes, all_s) == pytest.approx(ends)


def test_the_edge_stops_first_and_has_time_to_drain() -> None:
    last = specs(Path("cohabit.yaml"), ("broker", "scheduler"))[-1]
    assert last.name == "edge"
    assert EdgeConfig().drain_s < last.stop_s < STOP_S < 10.0


async def test_a_second_signal_kills_at_once() -> None:
    async with host({"a": STUBBORN, "b": STUBBORN}, stop_s=100.0) as launcher:
        pids = await launcher.pids("a", "b")
        launcher.process.send_signal(signal.SIGINT)
        await launcher.expect(r"stopping \(SIGINT\)")
        launcher.process.send_signal(signal.SIGINT)
        await launcher.end(within_s=10.0)
        assert all(gone(pid) for pid in pids.values())


async def test_no_orphan_when_the_launcher_is_killed() -> None:
    async with host({"a": STUBBORN, "b": POLITE}) as launcher:
        pids = await launcher.pids("a", "b")
        launcher.process.kill()
        await until(lambda: all(gone(pid) for pid in pids.values()))


async def test_a_refused_configuration_stops_everything_with_its_message() -> None:
    async with host({"a": POLITE, "edge": MISCONFIGURED}) as launcher:
        assert await launcher.end() == 2
        page = "\n".join(launcher.seen)
        assert "edge cannot use its configuration" in page
        assert re.search(r"cohabit \|   cohabit\.yaml:3: edge\.listen: expected host:port", page)


async def test_a_configuration_broken_while_the_house_runs_does_not_stop_it(
    tmp_path: Path,
) -> None:
    crashing = MISCONFIGURED_SINCE % {"ran": str(tmp_path / "ran")}
    async with host({"a": POLITE, "b": crashing}) as launcher:
        pids = await launcher.pids("a", "b")
        os.kill(pids["b"], signal.SIGKILL)
        await launcher.expect(r"^cohabit \| b ended with 2 .* again in 0\.4 s$")
        assert not gone(pids["a"])


async def test_ctrl_c_in_the_terminal_cannot_reach_a_service() -> None:
    async with host({"a": POLITE}) as launcher:
        pid = (await launcher.pids("a"))["a"]
        assert os.getsid(pid) == pid


async def test_lines_are_prefixed_and_bounded_and_the_side_task_runs() -> None:
    async with host({"chatty": CHATTY}) as launcher:
        await launcher.pids("chatty")
        await launcher.expect(r"^chatty  \| y+$")
        launcher.process.send_signal(signal.SIGTERM)
        assert await launcher.end() == 0
        long = [line.count("y", 9) for line in launcher.seen if "yyy" in line]
        assert sum(long) == 200_000
        assert max(long) == 64 * 1024
        assert "chatty  | unfinished" in launcher.seen
        assert "cohabit | beside" in launcher.seen


def test_a_run_directory_has_one_launcher(tmp_path: Path) -> None:
    with run_lock(tmp_path / "run"):
        said = rf"already up in .*run \(process {os.getpid()}\)"
        with pytest.raises(Refused, match=said), run_lock(tmp_path / "run"):
            pass
    with run_lock(tmp_path / "run"):
        pass
