"""`cohabit jobs` as a process over a real job service; `paint` and `cutout` where there is none."""

import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chassis.errors import Fault, Reason
from cli.jobs.shell import Which, newest
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs.calls import JobCalls
from tests.command_kit import Command
from tests.jobs_kit import Peers, Service, serving

PAINT = pb.Picture(model="painter", prompt="a cat", seed=7)
CONFIG = """\
run_dir: r
addresses: {{jobs: "unix:{folder}/jobs.sock"}}
jobs: {{}}
"""


def pictures(count: int = 1) -> pb.JobSpec:
    return pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT, count=count))


@dataclass(frozen=True)
class Room:
    """A job service, and the command that asks it."""

    command: Command
    jobs: Service
    peers: Peers
    folder: Path


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    config = tmp_path / "cohabit.yaml"
    config.write_text(CONFIG.format(folder=tmp_path))
    peers = Peers(tmp_path)  # type: ignore[abstract]  # what no job asks for is not scripted
    async with peers.serving(), serving(tmp_path, peers) as jobs:
        yield Room(Command(config), jobs, peers, tmp_path)


async def test_the_list_is_newest_first_and_may_be_narrowed(room: Room) -> None:
    old = await room.jobs.ended((await room.jobs.submit(pictures())).job_id)
    room.peers.faults.append(Fault(Reason.INVALID_REQUEST, "The cat is too large."))
    failed = await room.jobs.ended((await room.jobs.submit(pictures())).job_id)
    code, out, err = await room.command.run("jobs")
    assert (code, err) == (0, "")
    assert re.findall(r"job_\w+", out) == [failed.job_id, old.job_id]
    assert "The cat is too large." in out
    code, out, _ = await room.command.run("jobs", "--state", "succeeded", "--json")
    assert [job["id"] for job in json.loads(out)] == [old.job_id]
    code, out, _ = await room.command.run("jobs", "--limit", "1", "--json")
    assert [job["id"] for job in json.loads(out)] == [failed.job_id]
    code, out, _ = await room.command.run("jobs", "--state", "queued")
    assert (code, out) == (0, "Jobs\nnone\n")


async def test_a_list_of_several_pages_is_one(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.jobs.shell._PAGE", 2)
    ids = [(await room.jobs.submit(pictures())).job_id for _ in range(5)]
    calls = JobCalls(room.jobs.stub, 1.0, 30.0)
    assert [job.job_id for job in await newest(calls, Which((), 9, ""))] == ids[::-1]
    assert [job.job_id for job in await newest(calls, Which((), 3, ""))] == ids[:1:-1]


async def test_one_job_with_its_steps_and_results(room: Room) -> None:
    job = await room.jobs.ended((await room.jobs.submit(pictures(2))).job_id)
    code, out, err = await room.command.run("jobs", job.job_id)
    assert (code, err) == (0, "")
    assert out.startswith(f'{job.job_id}  image generation, succeeded\n"a cat"\ncreated ')
    assert re.search(r"\npainting 2 of 2  done +━+ 100%  painter", out)
    assert re.search(r"\nimage-1  image +\d+x\d+  image/webp", out)
    code, out, _ = await room.command.run("jobs", job.job_id, "--json")
    said = json.loads(out)
    assert (code, said["request"]["prompt"], said["files"]) == (0, "a cat", {})


async def test_jobs_of_a_key_are_asked_for_by_its_name(room: Room) -> None:
    job = await room.jobs.submit(pictures(), owner="alice")
    assert (await room.command.run("jobs"))[1] == "Jobs\nnone\n"
    assert (await room.command.run("jobs", job.job_id))[0] == 1
    code, out, _ = await room.command.run("jobs", "--owner", "alice", "--json")
    assert (code, [one["id"] for one in json.loads(out)]) == (0, [job.job_id])
    words = ("jobs", job.job_id, "--owner", "alice", "--watch", "--save", str(room.folder / "a"))
    code, out, err = await room.command.run(*words)
    assert code == 0, err
    assert len(list((room.folder / "a").iterdir())) == 1


async def test_a_watched_job_ends_as_the_command_does(room: Room) -> None:
    room.peers.held.clear()
    job = (await room.jobs.submit(pictures())).job_id
    async with room.command.on_terminal("jobs", job, "--watch") as terminal:
        await terminal.until("running: painting")
        room.peers.held.set()
        await terminal.until(r"Results")
        assert await terminal.ended() == 0
    assert '"a cat"' in terminal.text
    assert "Traceback" not in terminal.text
    room.peers.faults.append(Fault(Reason.INVALID_REQUEST, "The cat is too large."))
    job = (await room.jobs.submit(pictures())).job_id
    code, out, err = await room.command.run("jobs", job, "--watch", "--save", str(room.folder))
    assert (code, "failed" in err.splitlines()[-1]) == (1, True)
    assert out.endswith("\nThe cat is too large.\n")


async def test_ctrl_c_leaves_the_job_alone(room: Room) -> None:
    room.peers.held.clear()
    job = (await room.jobs.submit(pictures())).job_id
    async with room.command.on_terminal("jobs", job, "--watch") as terminal:
        await terminal.until("running: painting")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until("the job goes on")
        assert await terminal.ended() == 128 + signal.SIGINT
    room.peers.held.set()
    assert (await room.jobs.ended(job)).state == pb.JOB_STATE_SUCCEEDED


async def test_a_job_is_cancelled(room: Room) -> None:
    room.peers.held.clear()
    running = (await room.jobs.submit(pictures())).job_id
    await room.jobs.until(running, pb.JOB_STATE_RUNNING)
    code, out, _ = await room.command.run("jobs", running, "--cancel")
    assert code == 0
    assert out in {f"{running}: running, to be cancelled.\n", f"{running}: cancelled.\n"}
    assert (await room.jobs.ended(running)).state == pb.JOB_STATE_CANCELLED
    code, out, _ = await room.command.run("jobs", running, "--cancel", "--json")
    assert (code, json.loads(out)["state"]) == (0, "cancelled")


async def test_results_are_saved_and_nothing_is_written_over(room: Room) -> None:
    job = await room.jobs.ended((await room.jobs.submit(pictures(2))).job_id)
    folder = room.folder / "new" / "cats"
    words = ("jobs", job.job_id, "--save", str(folder))
    paths = [folder / "image-0.webp", folder / "image-1.webp"]
    code, out, err = await room.command.run(*words)
    assert (code, out, err) == (0, "".join(f"{path}\n" for path in paths), "")
    for path, result in zip(paths, job.results, strict=True):
        assert path.read_bytes() == await room.jobs.read(job.job_id, result.result_id)
    paths[0].unlink()
    paths[1].write_bytes(b"mine")
    code, _, err = await room.command.run(*words)
    assert (code, "image-1.webp exists; add --force" in err) == (1, True)
    assert [path.name for path in folder.iterdir()] == ["image-1.webp"]
    assert paths[1].read_bytes() == b"mine"
    assert (await room.command.run(*words, "--force"))[0] == 0
    assert paths[1].read_bytes() != b"mine"


async def test_what_arrives_damaged_is_not_kept(room: Room) -> None:
    job = await room.jobs.ended((await room.jobs.submit(pictures())).job_id)
    (file,) = (room.folder / "jobs" / "files" / job.job_id).iterdir()
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    folder = room.folder / "cats"
    code, _, err = await room.command.run("jobs", job.job_id, "--save", str(folder))
    assert (code, err) == (1, "image-0.webp arrived damaged and was not kept; try again.\n")
    assert list(folder.iterdir()) == []


async def test_the_list_is_followed_on_a_terminal(room: Room) -> None:
    async with room.command.on_terminal("jobs", "--follow") as terminal:
        await terminal.until("none")
        job = (await room.jobs.submit(pictures())).job_id
        await terminal.until(job)
        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.ended() == 0
        await terminal.until(re.escape("\x1b[?1049l"))
        assert "Traceback" not in terminal.text
    code, _, err = await room.command.run("jobs", "--follow")
    assert (code, err.startswith("--follow needs a terminal")) == (1, True)


async def test_what_is_not_there_is_a_sentence(room: Room, tmp_path: Path) -> None:
    code, out, err = await room.command.run("jobs", "job_none")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("There is no job 'job_none'")
    room.peers.held.clear()
    job = (await room.jobs.submit(pictures())).job_id
    code, _, err = await room.command.run("jobs", job, "--save", str(tmp_path / "x"))
    assert (code, "has no results yet" in err, "--watch" in err) == (1, True, True)
    output = str(tmp_path / "x.png")
    code, _, err = await room.command.run("paint", "sdxl", "a cat", "--output", output)
    assert (code, err.startswith("Nothing paints in this house")) == (1, True)
    (tmp_path / "cat.jpg").write_bytes(b"cat")
    code, _, err = await room.command.run("cutout", str(tmp_path / "cat.jpg"), "--output", output)
    assert (code, err.startswith("Nothing cuts subjects out in this house")) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ["jobs"],
        ["jobs", "job_x", "--watch"],
        ["jobs", "job_x", "--cancel"],
        ["paint", "m", "a cat", "--output", "never.png"],
        ["cutout", __file__, "--output", "never.webp"],
        ["cutout", __file__, "--output", "never.webp", "--model", "m"],
    ],
)
async def test_a_house_that_does_not_run_is_one_sentence(tmp_path: Path, words: list[str]) -> None:
    config = tmp_path / "cohabit.yaml"
    config.write_text("run_dir: r\njobs: {}\ndiffusion: {}\nmatte: {}\n")
    code, out, err = await Command(config).run(*words)
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert "does not answer" in err
    assert "`cohabit up`" in err


async def test_a_house_without_jobs_says_so(tmp_path: Path) -> None:
    config = tmp_path / "cohabit.yaml"
    config.write_text("run_dir: r\n")
    code, _, err = await Command(config).run("jobs")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(
        "Nothing runs jobs in this house: its configuration has no `jobs` section"
    )
