"""JobService over real gRPC, its peers scripted: what is promised about jobs, on the wire."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from imaging.decode import decode
from imaging.values import Bounds
from tests.jobs_kit import DEADLINE_S, Peers, Service, file, picture, serving

PAINT = pb.Picture(model="painter", prompt="a cat", seed=7)
IMAGE = pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT))
PHOTO = file(picture(40, 30))


def removal(**cutout: Any) -> pb.JobSpec:
    work = pb.BackgroundRemoval(image=PHOTO, cutout=pb.CutoutOptions(**cutout))
    return pb.JobSpec(background_removal=work)


def foreground(**more: Any) -> pb.JobSpec:
    return pb.JobSpec(foreground_generation=pb.ForegroundGeneration(picture=PAINT, **more))


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


# -- what jobs do --------------------------------------------------------------------------------


async def test_pictures_are_generated_one_after_another(jobs: Service, peers: Peers) -> None:
    work = pb.ImageGeneration(
        picture=PAINT, count=3, output=pb.ResultOutput(format=pb.RESULT_FORMAT_PNG)
    )
    job = await jobs.submit(pb.JobSpec(image_generation=work), owner="", request_id="r1")
    assert job.kind == pb.JOB_KIND_IMAGE_GENERATION
    done = await jobs.ended(job.job_id)
    assert done.state == pb.JOB_STATE_SUCCEEDED
    assert done.progress == 1
    assert [r.result_id for r in done.results] == ["image-0", "image-1", "image-2"]
    assert [r.seed for r in done.results] == [7, 8, 9]
    assert [g.seed for g in peers.generates] == [7, 8, 9]
    first = done.results[0]
    data = await jobs.read(job.job_id, "image-0")
    assert (first.mime_type, first.size_bytes) == ("image/png", len(data))
    assert first.sha256 == hashlib.sha256(data).digest()
    assert decode(data, Bounds(), "x").width_px == first.width_px == 32


async def test_every_call_is_admitted_in_the_background_with_its_memory(
    jobs: Service, peers: Peers
) -> None:
    await jobs.ended((await jobs.submit(foreground())).job_id)
    painted, cut = peers.admits
    assert painted.tier == cut.tier == common_pb2.TIER_BACKGROUND
    assert (painted.model, cut.model) == ("painter", "cutter")
    assert (painted.preferred_transient_mib, painted.minimum_transient_mib) == (200, 100)
    assert cut.preferred_transient_mib == 32 * 16  # as its peer plans for its size
    assert peers.generates[0].transient_lease_id == "lease"
    assert peers.removals[0].transient_mib == 77
    assert peers.most_permits == 1, "a permit was held across another call"


async def test_a_foreground_goes_to_the_matte_as_bare_pixels(jobs: Service, peers: Peers) -> None:
    spec = foreground(cutout=pb.CutoutOptions(return_matte=True), return_source=True)
    done = await jobs.ended((await jobs.submit(spec)).job_id)
    assert peers.generates[0].output.format == diffusion_pb2.IMAGE_FORMAT_PPM
    assert peers.removals[0].image.data.startswith(b"P6")
    roles = [pb.ResultRole.Name(r.role) for r in done.results]
    assert roles == ["RESULT_ROLE_CUTOUT", "RESULT_ROLE_MATTE", "RESULT_ROLE_SOURCE"]
    assert {r.mime_type for r in done.results} == {"image/webp"}
    assert {r.seed for r in done.results} == {7}


@pytest.mark.parametrize("backdrop", ["color", "image", "estimated"])
async def test_a_plain_backdrop_takes_one_call(jobs: Service, peers: Peers, backdrop: str) -> None:
    values = {
        "color": "navy",
        "image": file(picture(90, 90)),
        "estimated": pb.CutoutOptions.EstimatedBackdrop(),
    }
    done = await jobs.ended((await jobs.submit(removal(**{backdrop: values[backdrop]}))).job_id)
    assert [r.result_id for r in done.results] == ["image-0"]
    assert peers.removals[0].backdrop.WhichOneof("kind") == backdrop
    assert peers.removals[0].image.data == PHOTO.data
    if backdrop == "image":
        assert peers.removals[0].backdrop.image.data == values["image"].data  # type: ignore[attr-defined]
        # Lent for the larger of the two.
        assert peers.admits[0].preferred_transient_mib == 90 * 90


async def test_a_generated_backdrop_keeps_the_light_of_the_old_one(
    jobs: Service, peers: Peers
) -> None:
    generated = pb.CutoutOptions.GeneratedBackdrop(picture=PAINT, background_strength=0.6)
    spec = removal(generated=generated, return_background=True, return_matte=True)
    done = await jobs.ended((await jobs.submit(spec)).job_id)
    assert done.state == pb.JOB_STATE_SUCCEEDED, done.failure
    painted, composed = peers.generates[0], peers.composites[0]
    assert (painted.width_px, painted.height_px) == (40, 30)
    assert painted.init_image.data.startswith(b"P6")
    assert painted.strength == pytest.approx(0.6)
    assert composed.foreground.data.startswith(b"P7")
    assert composed.backdrop.image.data.startswith(b"P6")
    assert not peers.composing_with_permit
    assert [r.result_id for r in done.results] == [
        "image-0",
        "matte-0",
        "background-0",
        "backdrop-0",
    ]
    for result in done.results:
        assert decode(await jobs.read(done.job_id, result.result_id), Bounds(), "x").width_px == 40


async def test_a_backdrop_starts_from_noise_unless_told_otherwise(
    jobs: Service, peers: Peers
) -> None:
    generated = pb.CutoutOptions.GeneratedBackdrop(picture=PAINT)
    await jobs.ended((await jobs.submit(removal(generated=generated))).job_id)
    assert not peers.generates[0].HasField("init_image")
    assert not peers.removals[0].return_background


async def test_a_backdrop_too_large_for_its_model_is_painted_smaller(
    jobs: Service, peers: Peers
) -> None:
    peers.max_px = 128 * 128
    large = pb.BackgroundRemoval(image=PHOTO)
    large.cutout.generated.picture.CopyFrom(PAINT)
    large.cutout.generated.picture.width_px = 512
    large.cutout.generated.picture.height_px = 256
    done = await jobs.ended((await jobs.submit(pb.JobSpec(background_removal=large))).job_id)
    assert done.state == pb.JOB_STATE_SUCCEEDED, done.failure
    assert (peers.generates[0].width_px, peers.generates[0].height_px) == (128, 64)


async def test_a_family_stands_for_its_model(jobs: Service, peers: Peers) -> None:
    spec = pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT))
    spec.image_generation.picture.model = "painters"
    done = await jobs.ended((await jobs.submit(spec)).job_id)
    assert peers.admits[0].model == "painter"
    assert done.steps[0].model_key == "painter"


async def test_a_seed_is_drawn_at_acceptance_and_told(jobs: Service, peers: Peers) -> None:
    spec = pb.JobSpec(image_generation=pb.ImageGeneration(picture=PAINT, count=2))
    spec.image_generation.picture.ClearField("seed")
    peers.faults = [Fault(Reason.ENGINE_CRASHED, "It fell over.")]
    job = await jobs.submit(spec)
    told = (await jobs.get(job.job_id)).spec.image_generation.picture
    drawn = told.seed
    assert told.HasField("seed")
    await jobs.ended(job.job_id)
    assert [g.seed for g in peers.generates] == [drawn, drawn, drawn + 1]


# -- failures, cancels, restarts -----------------------------------------------------------------


async def test_a_failure_that_passes_is_tried_again(jobs: Service, peers: Peers) -> None:
    peers.faults = [Fault(Reason.NO_HEADROOM, "No room."), Fault(Reason.ENGINE_CRASHED, "Gone.")]
    done = await jobs.ended((await jobs.submit(IMAGE)).job_id)
    assert done.state == pb.JOB_STATE_SUCCEEDED
    assert done.steps[0].attempts == 3
    assert not done.steps[0].HasField("failure")


async def test_another_failure_fails_the_job_with_its_sentence(jobs: Service, peers: Peers) -> None:
    peers.faults = [Fault(Reason.LORA_NOT_FOUND, "There is no LoRA 'x'.")]
    done = await jobs.ended((await jobs.submit(IMAGE)).job_id)
    assert done.state == pb.JOB_STATE_FAILED
    assert done.failure.reason == "lora_not_found"
    assert done.failure.message == "There is no LoRA 'x'."
    assert done.steps[0].state == pb.STEP_STATE_FAILED
    assert not done.results


async def test_breakdowns_without_end_fail_the_job(jobs: Service, peers: Peers) -> None:
    peers.faults = [Fault(Reason.MODEL_FAILED, "Its file is broken.") for _ in range(9)]
    done = await jobs.ended((await jobs.submit(IMAGE)).job_id)
    assert (done.state, done.failure.reason) == (pb.JOB_STATE_FAILED, "model_failed")
    assert done.steps[0].attempts == 5


async def test_a_running_job_is_cancelled_and_gives_everything_back(
    jobs: Service, peers: Peers
) -> None:
    peers.held.clear()
    job = await jobs.submit(IMAGE)
    await asyncio.wait_for(peers.began.wait(), DEADLINE_S)
    said = await jobs.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
    assert said.job.cancel_requested or said.job.state == pb.JOB_STATE_CANCELLED
    done = await jobs.ended(job.job_id)
    assert done.state == pb.JOB_STATE_CANCELLED
    assert done.steps[0].state == pb.STEP_STATE_SKIPPED
    again = await jobs.stub.CancelJob(pb.CancelJobRequest(job_id=job.job_id))
    assert again.job.revision == done.revision
    assert not list((jobs.folder / "jobs" / "files").iterdir())


async def test_a_queued_job_is_cancelled_when_the_call_answers(jobs: Service, peers: Peers) -> None:
    peers.held.clear()
    ids = [(await jobs.submit(IMAGE)).job_id for _ in range(4)]
    assert [(await jobs.get(name)).position for name in ids[2:]] == [0, 1]
    said = await jobs.stub.CancelJob(pb.CancelJobRequest(job_id=ids[3]))
    assert said.job.state == pb.JOB_STATE_CANCELLED
    peers.held.set()
    assert [(await jobs.ended(name)).state for name in ids[:3]] == [pb.JOB_STATE_SUCCEEDED] * 3


async def test_a_restart_goes_on_where_the_disk_is(tmp_path: Path, peers: Peers) -> None:
    generated = pb.CutoutOptions.GeneratedBackdrop(picture=PAINT)
    async with serving(tmp_path, peers) as jobs:
        first = await jobs.ended((await jobs.submit(IMAGE, idempotency_key="k")).job_id)
        made = await jobs.read(first.job_id, "image-0")
        peers.began.clear()
        job = await jobs.submit(removal(generated=generated))
        peers.held.clear()
        await asyncio.wait_for(peers.began.wait(), DEADLINE_S)
    peers.held.set()
    async with serving(tmp_path, peers) as jobs:
        done = await jobs.ended(job.job_id)
        assert done.state == pb.JOB_STATE_SUCCEEDED, done.failure
        assert done.revision > job.revision
        assert await jobs.read(first.job_id, "image-0") == made
        known = await jobs.stub.SubmitJob(pb.SubmitJobRequest(spec=IMAGE, idempotency_key="k"))
        assert (known.existing, known.job.job_id) == (True, first.job_id)


# -- idempotency, lists, results, watching -------------------------------------------------------


async def test_the_same_key_is_the_same_job_or_a_conflict(jobs: Service, peers: Peers) -> None:
    request = pb.SubmitJobRequest(spec=removal(), idempotency_key="k")
    answers = await asyncio.gather(*(jobs.stub.SubmitJob(request) for _ in range(5)))
    assert len({answer.job.job_id for answer in answers}) == 1
    assert sorted(answer.existing for answer in answers) == [False, True, True, True, True]
    other = pb.SubmitJobRequest(spec=removal(color="red"), idempotency_key="k")
    fault = await refusal(jobs.stub.SubmitJob(other))
    assert fault.reason is Reason.IDEMPOTENCY_KEY_REUSED
    await jobs.ended(answers[0].job.job_id)
    assert len(peers.removals) == 1
    folders = [path.name for path in (jobs.folder / "jobs" / "files").iterdir()]
    assert folders == [answers[0].job.job_id]


async def test_a_list_has_pages_and_owners(jobs: Service) -> None:
    ids = [(await jobs.submit(IMAGE, owner="me")).job_id for _ in range(5)]
    await jobs.submit(IMAGE, owner="you")
    seen: list[str] = []
    token = ""
    while True:
        request = pb.ListJobsRequest(owner="me", page_size=2, page_token=token)
        answer = await jobs.stub.ListJobs(request)
        seen += [job.job_id for job in answer.jobs]
        assert not any(job.HasField("spec") for job in answer.jobs)
        token = answer.next_page_token
        if not token:
            break
    assert seen == ids[::-1]
    bad = pb.ListJobsRequest(owner="me", page_token="nonsense")
    assert (await refusal(jobs.stub.ListJobs(bad))).reason is Reason.INVALID_PAGE_TOKEN
    for call in (
        jobs.stub.GetJob(pb.GetJobRequest(owner="you", job_id=ids[0])),
        jobs.stub.CancelJob(pb.CancelJobRequest(owner="you", job_id=ids[0])),
        jobs.stub.WatchJob(pb.WatchJobRequest(owner="you", job_id=ids[0])).read(),
        jobs.stub.ReadResult(pb.ReadResultRequest(owner="you", job_id=ids[0])).read(),
    ):
        assert (await refusal(call)).reason is Reason.JOB_NOT_FOUND


async def test_a_spec_is_told_without_its_pictures(jobs: Service) -> None:
    job = await jobs.submit(removal(return_matte=True))
    told = (await jobs.get(job.job_id)).spec.background_removal
    assert told.cutout.return_matte
    assert (told.image.data, told.image.mime_type) == (b"", "image/png")


async def test_results_are_read_from_any_offset(jobs: Service) -> None:
    done = await jobs.ended((await jobs.submit(IMAGE)).job_id)
    whole = await jobs.read(done.job_id, "image-0")
    size = len(whole)
    assert await jobs.read(done.job_id, "image-0", 5) == whole[5:]
    assert await jobs.read(done.job_id, "image-0", size) == b""
    beyond = pb.ReadResultRequest(job_id=done.job_id, result_id="image-0", offset_bytes=size + 1)
    assert (await refusal(jobs.stub.ReadResult(beyond).read())).reason is Reason.INVALID_OFFSET
    unknown = pb.ReadResultRequest(job_id=done.job_id, result_id="image-1")
    assert (await refusal(jobs.stub.ReadResult(unknown).read())).reason is Reason.RESULT_NOT_FOUND


async def test_a_watch_begins_after_what_was_seen_and_ends_with_the_job(
    jobs: Service, peers: Peers
) -> None:
    peers.held.clear()
    job = await jobs.submit(IMAGE)
    await asyncio.wait_for(peers.began.wait(), DEADLINE_S)
    running = await jobs.until(job.job_id, pb.JOB_STATE_RUNNING)
    watch = jobs.stub.WatchJob(
        pb.WatchJobRequest(job_id=job.job_id, after_revision=running.revision + 100)
    )
    peers.held.set()
    told = [answer.job async for answer in watch]
    assert [job.state for job in told] == [pb.JOB_STATE_SUCCEEDED]
    done = await jobs.ended(job.job_id)
    assert done.revision == told[-1].revision


async def test_a_watch_is_told_of_progress(jobs: Service, peers: Peers) -> None:
    peers.held.clear()
    job = await jobs.submit(IMAGE)
    async for told in jobs.stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id)):
        if told.job.progress > 0:
            break
    assert told.job.steps[0].state == pb.STEP_STATE_RUNNING
    assert told.job.progress == pytest.approx(0.475)
    assert told.job.steps[0].model_key == "painter"
