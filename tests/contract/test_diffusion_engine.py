"""The diffusion engine on a real (tiny, random) model: what is the same, and what is told."""

import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from PIL import Image

from chassis.errors import Reason
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from imaging.encode import encode
from imaging.values import Encoding, Format, Picture
from services.diffusion.core.peak import Growth
from services.diffusion.painter import Painted
from tests.diffusion_kit import (
    DEADLINE_S,
    KEY,
    Answer,
    Engine,
    answer_of,
    asking,
    engine,
    fresh,
    spec_of_tiny,
)
from tests.tiny_diffusion import (
    TinyDiffusion,
    make_tiny_diffusion,
    write_autoencoder,
    write_lora,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyDiffusion:
    return make_tiny_diffusion(tmp_path_factory.mktemp("tiny"), vae=True)


@pytest.fixture(scope="module")
def lora_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loras")
    write_lora(folder / "ink.safetensors")
    (folder / "many").mkdir()
    write_lora(folder / "many" / "a.safetensors", seed=1)
    write_lora(folder / "many" / "b.safetensors", seed=2)
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(
    made: TinyDiffusion, lora_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    spec = spec_of_tiny(made, lora_dir=str(lora_dir))
    async with engine(spec, tmp_path_factory.mktemp("run")) as running:
        yield running


def media(picture: Picture | None = None, *, kind: Format = Format.PNG) -> common_pb2.Media:
    if picture is None:
        noise = np.random.default_rng(0).integers(0, 256, (48, 80, 3), np.uint8)
        picture = Picture(noise)
    made = encode(picture, Encoding(kind))
    return common_pb2.Media(data=made.data, mime_type=made.mime_type)


def opened(answer: Answer, index: int = 0) -> Any:
    return Image.open(io.BytesIO(answer.data[index]))


async def refused(
    tiny: Engine, request: pb.GenerateRequest, **call: Any
) -> tuple[Reason, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer_of(tiny.call(request, **call))
    fault = fault_of(caught.value, "model")
    return fault.reason, dict(fault.metadata)


async def test_the_same_seed_makes_the_same_bytes_and_another_seed_others(tiny: Engine) -> None:
    first, again = await tiny.generate(fresh()), await tiny.generate(fresh())
    assert first.data == again.data
    assert (await tiny.generate(fresh(seed=2))).data != first.data
    assert (await tiny.generate(fresh("a dog"))).data != first.data
    assert first.order[0] == "started"
    assert first.order[-1] == "finish"


async def test_each_of_a_batch_is_what_its_seed_makes_alone(tiny: Engine) -> None:
    batch = await tiny.generate(fresh(batch=3, seed=7))
    alone = [await tiny.generate(fresh(seed=seed)) for seed in (7, 8, 9)]
    assert batch.data == [data for answer in alone for data in answer.data]
    assert [image.seed for image in batch.images] == [7, 8, 9]
    assert [image.index for image in batch.images] == [0, 1, 2]


async def test_the_base_is_untouched_by_a_lora(tiny: Engine) -> None:
    before = await tiny.generate(fresh())
    styled = await tiny.generate(fresh(loras=[pb.Lora(lora_id="ink")]))
    weaker = await tiny.generate(fresh(loras=[pb.Lora(lora_id="ink", scale=0.5)]))
    after = await tiny.generate(fresh())
    assert styled.data != before.data != weaker.data != styled.data
    assert after.data == before.data
    assert (await tiny.generate(fresh(loras=[pb.Lora(lora_id="ink")]))).data == styled.data


async def test_a_lora_in_the_prompt_is_text(tiny: Engine, lora_dir: Path) -> None:
    file = lora_dir / "passing.safetensors"
    write_lora(file, seed=5)
    prompt = f"a cat <lora:{file}:1>"
    there = await tiny.generate(fresh(prompt))
    file.unlink()
    assert (await tiny.generate(fresh(prompt))).data == there.data


async def test_a_repeat_comes_from_the_cache_with_the_same_bytes(tiny: Engine) -> None:
    first, again = await tiny.generate(asking("cached")), await tiny.generate(asking("cached"))
    assert [image.origin for image in first.images] == [pb.IMAGE_ORIGIN_GENERATED]
    assert [image.origin for image in again.images] == [pb.IMAGE_ORIGIN_EXACT_RESULT_CACHE]
    assert first.data == again.data
    assert (await tiny.generate(fresh("cached"))).images[0].origin == pb.IMAGE_ORIGIN_GENERATED


async def test_pictures_of_a_batch_leave_in_order_wherever_they_come_from(tiny: Engine) -> None:
    later = await tiny.generate(asking("in order", seed=8))
    batch = await tiny.generate(asking("in order", seed=7, batch=2))
    assert [image.index for image in batch.images] == [0, 1]
    origins = [image.origin for image in batch.images]
    assert origins == [pb.IMAGE_ORIGIN_GENERATED, pb.IMAGE_ORIGIN_EXACT_RESULT_CACHE]
    assert batch.data[1] == later.data[0]


async def test_another_way_to_ask_for_the_same_size_is_no_other_request(tiny: Engine) -> None:
    await tiny.generate(asking("rounded", width_px=50))
    exact = await tiny.generate(asking("rounded", width_px=64))
    assert exact.images[0].origin == pb.IMAGE_ORIGIN_EXACT_RESULT_CACHE


async def test_without_a_seed_nothing_is_cached(tiny: Engine) -> None:
    request = asking("unseeded")
    request.ClearField("seed")
    first, again = await tiny.generate(request), await tiny.generate(request)
    assert again.images[0].origin == pb.IMAGE_ORIGIN_GENERATED
    assert first.started.seed != again.started.seed
    told = await tiny.generate(fresh("unseeded", seed=first.started.seed))
    assert told.data == first.data


async def test_a_changed_lora_file_is_another_lora(tiny: Engine, lora_dir: Path) -> None:
    write_lora(lora_dir / "changing.safetensors", seed=1)
    request = asking(loras=[pb.Lora(lora_id="changing")])
    first = await tiny.generate(request)
    write_lora(lora_dir / "changing.safetensors", seed=2)
    second = await tiny.generate(request)
    assert second.images[0].origin == pb.IMAGE_ORIGIN_GENERATED
    assert second.data != first.data


async def test_a_lora_that_changes_under_way_is_not_remembered(
    tiny: Engine, lora_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint, file = tiny.model.painter.paint, lora_dir / "moving.safetensors"
    write_lora(file, seed=1)

    def spied(*args: Any) -> Painted:
        write_lora(file, seed=2)
        return paint(*args)

    monkeypatch.setattr(tiny.model.painter, "paint", spied)
    held = len(tiny.model.cache)
    await tiny.generate(asking(loras=[pb.Lora(lora_id="moving")]))
    assert len(tiny.model.cache) == held


async def test_sizes_are_rounded_up_and_said_so(tiny: Engine) -> None:
    answer = await tiny.generate(fresh(width_px=50, height_px=64))
    assert (answer.started.width_px, answer.started.height_px) == (64, 64)
    assert answer.started.size_rounded
    assert opened(answer).size == (64, 64)
    assert not (await tiny.generate(fresh(width_px=48, height_px=80))).started.size_rounded


async def test_a_picture_to_start_from_gives_its_size_and_is_left_by_strength(tiny: Engine) -> None:
    init = media()
    near = await tiny.generate(fresh(init_image=init, strength=0.5, steps=4))
    far = await tiny.generate(fresh(init_image=init, strength=1.0, steps=4))
    assert opened(near).size == (80, 48)
    assert near.data != far.data


async def test_a_mask_says_where_to_paint(tiny: Engine) -> None:
    init = media()
    black, white = (Picture(np.full((48, 80, 3), value, np.uint8)) for value in (0, 255))
    kept = await tiny.generate(fresh(init_image=init, mask=media(black)))
    painted = await tiny.generate(fresh(init_image=init, mask=media(white)))
    assert kept.data != painted.data
    # As editors cut it out: transparent is painted, whatever the colours.
    alpha = np.zeros((48, 80), np.uint8)
    cut = await tiny.generate(fresh(init_image=init, mask=media(Picture(black.rgb, alpha))))
    assert cut.data == painted.data


async def test_reference_images_are_looked_at(tiny: Engine) -> None:
    bare = await tiny.generate(fresh())
    one = await tiny.generate(fresh(reference_images=[media()]))
    two = await tiny.generate(fresh(reference_images=[media(), media()]))
    assert len({bare.data[0], one.data[0], two.data[0]}) == 3


async def test_previews_are_small_jpegs_and_change_nothing(tiny: Engine) -> None:
    preview = pb.GenerateRequest.PreviewOptions(every_steps=2, max_px=32)
    shown = await tiny.generate(fresh(steps=4, preview=preview))
    assert shown.data == (await tiny.generate(fresh(steps=4))).data
    assert shown.previews
    assert {preview.step % 2 for preview in shown.previews} == {0}
    first = Image.open(io.BytesIO(shown.previews[0].image.data))
    assert (first.format, max(first.size)) == ("JPEG", 32)


async def test_the_small_decoder_shows_and_the_large_one_decodes(
    made: TinyDiffusion, tiny: Engine, tmp_path: Path
) -> None:
    weights = tmp_path / "autoencoder.safetensors"
    write_autoencoder(weights)
    spec = spec_of_tiny(made)
    spec = replace(
        spec,
        files={**spec.files, "vae": str(weights)},
        placement=replace(spec.placement, taesd_previews_only=True),
        peak=replace(spec.peak, preview=Growth(100.0)),
    )
    preview = pb.GenerateRequest.PreviewOptions(every_steps=1)
    async with engine(spec, tmp_path) as running:
        shown = await running.generate(fresh(preview=preview))
        rough = await running.generate(fresh(preview=preview, transient_mib=60))
        started = await running.generate(fresh(init_image=media(), strength=0.5))
    assert shown.data == rough.data != (await tiny.generate(fresh())).data
    sides = [Image.open(io.BytesIO(one.previews[0].image.data)).width for one in (shown, rough)]
    assert sides == [64, 8]  # of the latents, where the lease covers no decoder beside the steps
    assert opened(started).size == (80, 48)


async def test_progress_goes_through_the_phases(tiny: Engine) -> None:
    answer = await tiny.generate(fresh(steps=3, width_px=256, height_px=256))
    phases = list(dict.fromkeys(progress.phase for progress in answer.progress))
    kind = pb.GenerateResponse
    assert phases[0] == kind.PHASE_CONDITION
    assert kind.PHASE_DENOISE in phases
    denoise = [p for p in answer.progress if p.phase == kind.PHASE_DENOISE]
    # A reader who is late hears of the latest alone, which may be of the next phase.
    assert 1 <= denoise[-1].done_steps <= denoise[-1].total_steps == 3
    assert any(progress.left_ms for progress in denoise)
    times = answer.finish.timings
    parts = times.condition_ms + times.denoise_ms + times.decode_ms
    assert min(times.denoise_ms, times.decode_ms) > 0
    assert parts < times.total_ms


async def test_tiles_are_taken_when_the_lease_covers_no_more(tiny: Engine) -> None:
    size: dict[str, Any] = {"width_px": 256, "height_px": 320, "steps": 1}  # more than one tile
    small = await tiny.generate(fresh(transient_mib=60, **size))
    large = await tiny.generate(fresh(transient_mib=400, **size))
    assert (small.started.vae_tiled, large.started.vae_tiled) == (True, False)
    reason, told = await refused(tiny, fresh(transient_mib=50, **size))
    assert reason is Reason.LEASE_REQUIRED
    assert int(told["needed_mib"]) > 50


@pytest.mark.parametrize(
    ("fields", "mime", "name"),
    [
        ({"format": pb.IMAGE_FORMAT_PNG}, "image/png", "PNG"),
        ({"format": pb.IMAGE_FORMAT_JPEG, "quality": 70}, "image/jpeg", "JPEG"),
        ({"format": pb.IMAGE_FORMAT_PPM}, "image/x-portable-pixmap", "PPM"),
        ({"lossless": True}, "image/webp", "WEBP"),
        ({}, "image/webp", "WEBP"),
    ],
)
async def test_pictures_leave_as_asked(
    tiny: Engine, fields: dict[str, Any], mime: str, name: str
) -> None:
    answer = await tiny.generate(fresh(output=pb.ImageOutput(**fields)))
    assert answer.images[0].image.mime_type == mime
    assert opened(answer).format == name


async def test_how_it_was_made_stands_in_the_file(tiny: Engine) -> None:
    output = pb.ImageOutput(format=pb.IMAGE_FORMAT_PNG)
    text = opened(await tiny.generate(fresh("a red cat", output=output, seed=11))).info[
        "parameters"
    ]
    assert text.startswith("a red cat")
    assert "Steps: 2" in text
    assert "Seed: 11" in text
    assert "Denoising strength" not in text
    started = await tiny.generate(fresh(init_image=media(), strength=0.5, output=output))
    assert "Denoising strength: 0.5" in opened(started).info["parameters"]
    output.omit_parameters = True
    assert "parameters" not in opened(await tiny.generate(fresh(output=output))).info


@pytest.mark.parametrize(
    ("fields", "reason", "param"),
    [
        ({"width_px": 4096}, Reason.IMAGE_TOO_LARGE, "width_px"),
        ({"width_px": 2**32 - 1, "height_px": 2**32 - 1}, Reason.IMAGE_TOO_LARGE, "width_px"),
        ({"steps": 151}, Reason.INVALID_REQUEST, "steps"),
        ({"guidance": float("nan")}, Reason.INVALID_REQUEST, "guidance"),
        ({"guidance": 31}, Reason.INVALID_REQUEST, "guidance"),
        ({"eta": -0.1}, Reason.INVALID_REQUEST, "eta"),
        ({"batch": 5}, Reason.INVALID_REQUEST, "batch"),
        ({"seed": 2**63}, Reason.INVALID_REQUEST, "seed"),
        ({"sampler": 99}, Reason.INVALID_REQUEST, "sampler"),
        ({"strength": 0.5}, Reason.INVALID_REQUEST, "strength"),
        ({"prompt": "cat " * 9000}, Reason.INVALID_REQUEST, "prompt"),
        ({"prompt": "cat " * 4000}, Reason.INVALID_REQUEST, "prompt"),
        ({"negative_prompt": "a\0b"}, Reason.INVALID_REQUEST, "negative_prompt"),
        ({"prompt": "a \U000e0067 b"}, Reason.INVALID_REQUEST, "prompt"),
        ({"loras": [pb.Lora(lora_id="ink", scale=5)]}, Reason.INVALID_REQUEST, "loras[0].scale"),
        ({"loras": [pb.Lora(lora_id="ink")] * 9}, Reason.INVALID_REQUEST, "loras"),
        ({"loras": [pb.Lora(lora_id="gone")]}, Reason.LORA_NOT_FOUND, "loras[0].lora_id"),
        ({"loras": [pb.Lora(lora_id="many")]}, Reason.INVALID_REQUEST, "loras[0].filename"),
        ({"loras": [pb.Lora(path="/x.safetensors")]}, Reason.LORA_PATH_REFUSED, "loras[0].path"),
        ({"identity": pb.Identity()}, Reason.NOT_IMPLEMENTED, None),
        ({"reuse": pb.GenerateRequest.Reuse(latent_replay=True)}, Reason.NOT_IMPLEMENTED, None),
        ({"transient_lease_id": ""}, Reason.LEASE_REQUIRED, "transient_mib"),
        ({"model": "other"}, Reason.MODEL_NOT_FOUND, None),
    ],
)
async def test_what_cannot_be_is_refused_with_a_sentence(
    tiny: Engine, fields: dict[str, Any], reason: Reason, param: str | None
) -> None:
    given, told = await refused(tiny, asking(**fields))
    assert given is reason
    assert told.get("param") == param
    assert (reason is Reason.IMAGE_TOO_LARGE) == ("max_px" in told)


async def test_a_broken_picture_is_named(tiny: Engine) -> None:
    broken = common_pb2.Media(data=b"no picture", mime_type="image/png")
    both: list[dict[str, Any]] = [{"init_image": broken}, {"init_image": media(), "mask": broken}]
    for fields in both:
        reason, told = await refused(tiny, asking(**fields))
        assert reason is Reason.INVALID_IMAGE
        assert told["field"] == list(fields)[-1]
    reason, told = await refused(tiny, asking(reference_images=[media(), broken]))
    assert told["field"] == "reference_images[1]"


async def test_a_permit_is_demanded_and_good_once(tiny: Engine) -> None:
    assert (await refused(tiny, asking(), permit=""))[0] is Reason.PERMIT_REQUIRED
    await answer_of(tiny.call(asking(), permit="once"))
    assert (await refused(tiny, asking(), permit="once"))[0] is Reason.PERMIT_REVOKED


async def test_loras_are_listed(tiny: Engine, lora_dir: Path) -> None:
    (lora_dir / "broken.safetensors").write_bytes(b"nothing of the kind")
    answer = await tiny.stub.ListLoras(pb.ListLorasRequest(), timeout=DEADLINE_S)
    names = [(lora.lora_id, lora.filename) for lora in answer.loras]
    assert ("ink", "") in names
    assert {("many", "a.safetensors"), ("many", "b.safetensors")} <= set(names)
    assert "broken" not in dict(names)
    mine = await tiny.stub.ListLoras(pb.ListLorasRequest(model=KEY), timeout=DEADLINE_S)
    assert mine.loras == answer.loras  # none says what it was trained for


@pytest.mark.parametrize(
    ("method", "request_", "reason"),
    [
        ("ListLoras", pb.ListLorasRequest(model="other"), Reason.MODEL_NOT_FOUND),
        ("PlanGeneration", pb.PlanGenerationRequest(model=KEY), Reason.NOT_IMPLEMENTED),
        ("EncodeIdentity", pb.EncodeIdentityRequest(model=KEY), Reason.NOT_IMPLEMENTED),
    ],
)
async def test_what_an_engine_does_not_answer_it_says_so(
    tiny: Engine, method: str, request_: Any, reason: Reason
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(tiny.stub, method)(request_, timeout=DEADLINE_S)
    assert fault_of(caught.value, "model").reason is reason
