"""What JobService refuses, over real gRPC: at once, by the field, in a sentence."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from tests.jobs_kit import Peers, Service, file, picture, serving

PAINT = pb.Picture(model="painter", prompt="a cat", seed=7)
IMAGE = pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT))
PHOTO = file(picture(40, 30))


def removal(**cutout: Any) -> pb.JobSpec:
    work = pb.BackgroundRemoval(image=PHOTO, cutout=pb.CutoutOptions(**cutout))
    return pb.JobSpec(background_removal=work)


@pytest.fixture
async def peers(tmp_path: Path) -> AsyncIterator[Peers]:
    peers = Peers(tmp_path)  # type: ignore[abstract]  # what no job asks for is not scripted
    async with peers.serving():
        yield peers


@pytest.fixture
async def jobs(tmp_path: Path, peers: Peers) -> AsyncIterator[Service]:
    async with serving(tmp_path, peers) as service:
        yield service


async def refusal(call: Any) -> Fault:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return fault_of(caught.value, "jobs")


# -- what is refused -----------------------------------------------------------------------------


def _picture(**changes: Any) -> pb.JobSpec:
    made = pb.Picture()
    made.CopyFrom(PAINT)
    made.MergeFrom(pb.Picture(**changes))
    return pb.JobSpec(image_generation=pb.ImageGeneration(picture=made))


BAD: list[tuple[str, pb.JobSpec, Reason, str]] = [
    ("nothing", pb.JobSpec(), Reason.INVALID_REQUEST, "spec"),
    (
        "no model",
        pb.JobSpec(image_generation=pb.ImageGeneration()),
        Reason.INVALID_REQUEST,
        "picture.model",
    ),
    ("steps", _picture(steps=151), Reason.INVALID_REQUEST, "picture.steps"),
    ("nan", _picture(guidance=float("nan")), Reason.INVALID_REQUEST, "picture.guidance"),
    ("strength", _picture(strength=0.5), Reason.INVALID_REQUEST, "picture.strength"),
    ("prompt", _picture(prompt="x" * 40_000), Reason.INVALID_REQUEST, "picture.prompt"),
    ("seed", _picture(seed=2**63), Reason.INVALID_REQUEST, "picture.seed"),
    (
        "last seed",
        pb.JobSpec(
            image_generation=pb.ImageGeneration(
                picture=pb.Picture(model="painter", prompt="x", seed=2**63 - 1), count=2
            )
        ),
        Reason.INVALID_REQUEST,
        "picture.seed",
    ),
    ("unknown model", _picture(model="nobody"), Reason.MODEL_NOT_FOUND, "picture.model"),
    ("other model", _picture(model="talker"), Reason.INVALID_REQUEST, "picture.model"),
    ("colour", removal(color="hotdog"), Reason.INVALID_REQUEST, "cutout.color"),
    ("matte", removal(model="painter"), Reason.INVALID_REQUEST, "cutout.model"),
    (
        "count",
        pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT, count=65)),
        Reason.INVALID_REQUEST,
        "count",
    ),
    (
        "no picture",
        pb.JobSpec(background_removal=pb.BackgroundRemoval()),
        Reason.INVALID_IMAGE,
        "image",
    ),
    (
        "broken picture",
        pb.JobSpec(background_removal=pb.BackgroundRemoval(image=common_pb2.Media(data=b"<svg>"))),
        Reason.INVALID_IMAGE,
        "image",
    ),
    (
        "jpeg",
        pb.JobSpec(
            background_removal=pb.BackgroundRemoval(
                image=PHOTO, output=pb.ResultOutput(format=pb.RESULT_FORMAT_JPEG)
            )
        ),
        Reason.INVALID_REQUEST,
        "output.format",
    ),
]


@pytest.mark.parametrize(("spec", "reason", "param"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
async def test_what_cannot_be_done_is_refused_at_once(
    jobs: Service, spec: pb.JobSpec, reason: Reason, param: str
) -> None:
    fault = await refusal(jobs.stub.SubmitJob(pb.SubmitJobRequest(spec=spec)))
    assert (fault.reason, fault.metadata.get("param")) == (reason, param), fault.message
    assert not (await jobs.stub.ListJobs(pb.ListJobsRequest())).jobs
    assert not list((jobs.folder / "jobs" / "files").iterdir())


@pytest.mark.parametrize(
    "spec",
    [
        pb.JobSpec(publication=pb.Publication()),
        pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT), publish=pb.PublishTarget()),
    ],
    ids=["publication", "publish"],
)
async def test_publishing_is_not_built(jobs: Service, spec: pb.JobSpec) -> None:
    fault = await refusal(jobs.stub.SubmitJob(pb.SubmitJobRequest(spec=spec)))
    assert fault.reason is Reason.NOT_IMPLEMENTED


async def test_a_job_is_accepted_while_its_models_service_is_away(
    jobs: Service, peers: Peers
) -> None:
    models = list(peers.status.models)
    del peers.status.models[:]
    peers.status.reconciled = False
    job = await jobs.submit(IMAGE)
    peers.status.reconciled = True
    peers.status.models.extend(models)
    assert (await jobs.ended(job.job_id)).state == pb.JOB_STATE_SUCCEEDED


async def test_the_queue_is_bounded_and_says_when_to_come_again(
    tmp_path: Path, peers: Peers
) -> None:
    peers.held.clear()
    async with serving(tmp_path, peers, queue_limit=2) as jobs:
        for _ in range(2):
            await jobs.submit(IMAGE)
        fault = await refusal(jobs.stub.SubmitJob(pb.SubmitJobRequest(spec=IMAGE)))
        assert fault.reason is Reason.QUEUE_FULL
        assert fault.retry_after_s
        peers.held.set()


async def test_results_that_had_to_go_are_told_so(tmp_path: Path, peers: Peers) -> None:
    async with serving(tmp_path, peers, max_jobs=1) as jobs:
        first = await jobs.ended((await jobs.submit(IMAGE)).job_id)
        await jobs.ended((await jobs.submit(IMAGE)).job_id)
        fault = await refusal(jobs.stub.GetJob(pb.GetJobRequest(job_id=first.job_id)))
        assert fault.reason is Reason.JOB_NOT_FOUND
