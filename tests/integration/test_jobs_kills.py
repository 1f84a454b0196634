"""Jobs on real engines, while the services that do them are killed again and again: twenty, or
fifty in a deep run.

Every job ends exactly once and succeeds; what is read of its results is what was recorded; nothing
else is left on the disk.
"""

import hashlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import yaml
from PIL import Image
from skimage import data as photographs

from chassis.channel import open_channel
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.jobs.v1 import jobs_pb2_grpc
from imaging.decode import decode
from imaging.values import Bounds
from tests.integration.house import ROOT, House, free_port, started, until
from tests.tiny_diffusion import make_tiny_diffusion

JOBS = 50 if os.environ.get("COHABIT_DEEP") else 20
KILLS = ("services.jobs", "services.diffusion", "services.matte", "services.jobs")
NETWORK = ROOT / "models" / "u2netp.onnx"

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not NETWORK.exists(), reason="needs models/u2netp.onnx"),
]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = make_tiny_diffusion(tmp_path / "models")
    tiny: dict[str, Any] = {
        "family": "ovis-image",
        "files": {
            "diffusion_model": made.diffusion_model.name,
            "llm": made.llm.name,
            "taesd": made.taesd.name,
        },
        "defaults": {"steps": 2, "guidance": 1, "width_px": 64, "height_px": 64},
        "sizes": {"multiple_px": 16, "min_side_px": 16, "max_side_px": 512},
        "placement": {"threads": 1},
    }
    port = free_port()
    path = tmp_path / "cohabit.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "run_dir": "run",
                "state_dir": "state",
                "models_dir": "models",
                "broker": {"device": "cpu"},
                "scheduler": {"permits": 4, "background_quiet_s": 0},
                "diffusion": {"models": {"tiny": tiny}},
                "matte": {"models": {"cutter": {"path": str(NETWORK), "threads": 1}}},
                "jobs": {"running": 3, "retry_most_s": 2, "attempts": 50},
                "edge": {"listen": f"127.0.0.1:{port}"},
            }
        )
    )
    with started(path, port) as house:
        yield house


@asynccontextmanager
async def jobs_of(house: House) -> AsyncIterator["jobs_pb2_grpc.JobServiceAsyncStub"]:
    async with open_channel(house.address("jobs")) as channel:
        yield jobs_pb2_grpc.JobServiceStub(channel)


def picture(seed: int) -> pb.Picture:
    return pb.Picture(model="tiny", prompt=f"a cat, {seed}", seed=seed, steps=2)


def photo() -> common_pb2.Media:
    file = BytesIO()
    Image.fromarray(photographs.astronaut()).resize((96, 96)).save(file, "PNG")
    return common_pb2.Media(data=file.getvalue(), mime_type="image/png")


def specs() -> Iterator[tuple[pb.JobSpec, set[str]]]:
    """Of every kind, each with the results that it is to have."""
    shown = photo()
    generated = pb.CutoutOptions.GeneratedBackdrop(picture=picture(5), background_strength=0.5)
    for seed in itertools.count(1):
        pictures = pb.ImageGeneration(picture=picture(seed), count=2)
        yield pb.JobSpec(image_generation=pictures), {"image-0", "image-1"}
        cut = pb.CutoutOptions(return_matte=True)
        foreground = pb.ForegroundGeneration(picture=picture(seed), cutout=cut, return_source=True)
        yield (
            pb.JobSpec(foreground_generation=foreground),
            {"cutout-0", "matte-0", "source-0"},
        )
        removal = pb.BackgroundRemoval(image=shown, cutout=pb.CutoutOptions(color="navy"))
        yield pb.JobSpec(background_removal=removal), {"image-0"}
        removal = pb.BackgroundRemoval(image=shown, cutout=pb.CutoutOptions(generated=generated))
        yield pb.JobSpec(background_removal=removal), {"image-0", "backdrop-0"}


async def submitted(house: House, spec: pb.JobSpec, key: str) -> str:
    """Accepted at last: as a client does it, with its key, until it has an answer."""
    request = pb.SubmitJobRequest(spec=spec, idempotency_key=key)
    found: list[str] = []

    async def accepted() -> bool:
        with suppress(grpc.aio.AioRpcError):
            async with jobs_of(house) as stub:
                found.append((await stub.SubmitJob(request, timeout=10)).job.job_id)
        return bool(found)

    await until(accepted, 60, "the job is accepted")
    return found[0]


async def listed(house: House) -> list[pb.Job]:
    async with jobs_of(house) as stub:
        try:
            answer = await stub.ListJobs(pb.ListJobsRequest(page_size=200), timeout=10)
        except grpc.aio.AioRpcError:
            return []
        assert not answer.next_page_token
        return list(answer.jobs)


async def ended(house: House, count: int, within_s: float) -> None:
    async def enough() -> bool:
        jobs = await listed(house)
        failures = [job.failure for job in jobs if job.state == pb.JOB_STATE_FAILED]
        assert not failures, failures
        return sum(job.state == pb.JOB_STATE_SUCCEEDED for job in jobs) >= count

    await until(enough, within_s, f"{count} jobs end")


def kill(house: House, module: str) -> None:
    with suppress(LookupError, psutil.Error):  # it is on its way back from the last one
        house.process(module).send_signal(signal.SIGKILL)


async def test_fifty_jobs_end_exactly_once_whoever_is_killed(house: House, tmp_path: Path) -> None:
    wanted = list(itertools.islice(specs(), JOBS))
    ids: dict[str, set[str]] = {}
    kills = itertools.cycle(KILLS)
    for number, (spec, results) in enumerate(wanted):
        ids[await submitted(house, spec, f"key-{number}")] = results
        if number % 10 == 9:
            kill(house, next(kills))
    assert len(ids) == JOBS
    for count in range(5, JOBS, 5):
        await ended(house, count, 120)
        kill(house, next(kills))
    await ended(house, JOBS, 240)

    jobs = {job.job_id: job for job in await listed(house)}
    assert set(jobs) == set(ids), "a job was lost, or made twice"
    for job_id, results in ids.items():
        assert {result.result_id for result in jobs[job_id].results} == results
        assert len(jobs[job_id].results) == len(results)
        assert {step.state for step in jobs[job_id].steps} == {pb.STEP_STATE_DONE}
    assert max(step.attempts for job in jobs.values() for step in job.steps) > 1, "nothing was hit"

    again = [await submitted(house, spec, f"key-{n}") for n, (spec, _) in enumerate(wanted)]
    assert sorted(again) == sorted(ids), "a key made a second job"
    kill(house, "services.jobs")
    await read_all(house, jobs)
    kept = list((tmp_path / "state" / "jobs" / "files").glob("*/*"))
    assert len(kept) == sum(len(results) for results in ids.values())


async def read_all(house: House, jobs: dict[str, pb.Job]) -> None:
    """Every result, also after one more restart, is what was recorded."""

    async def back() -> bool:
        return len(await listed(house)) == len(jobs)

    await until(back, 30, "the job service is back")
    async with jobs_of(house) as stub:
        for job in jobs.values():
            for result in job.results:
                request = pb.ReadResultRequest(job_id=job.job_id, result_id=result.result_id)
                pieces = [piece.data async for piece in stub.ReadResult(request, timeout=10)]
                whole = b"".join(pieces)
                assert hashlib.sha256(whole).digest() == result.sha256
                seen = decode(whole, Bounds(), "result")
                assert (seen.width_px, seen.height_px) == (result.width_px, result.height_px)
