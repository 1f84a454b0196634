"""Specs of jobs: hashed, stripped, given seeds; and what they become for other services."""

import pytest

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.matte.v1 import matte_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as sched
from imaging.values import Bounds, Encoding, Format
from services.jobs import requests
from services.jobs.checks import check
from services.jobs.models import DIFFUSION, find
from services.jobs.pictures import shrunk
from services.jobs.spec import draw_seeds, hash_of, pictures_in, strip
from tests.picture_forge import pattern, saved

MEDIA = common_pb2.Media(data=b"bytes", mime_type="image/png")


def whole_spec() -> pb.JobSpec:
    work = pb.ForegroundGeneration(picture=pb.Picture(model="p", prompt="x", init_image=MEDIA))
    work.cutout.image.CopyFrom(common_pb2.Media(data=b"behind"))
    return pb.JobSpec(foreground_generation=work)


def test_the_hash_is_of_everything_that_was_asked_for() -> None:
    one, same, other = whole_spec(), whole_spec(), whole_spec()
    other.foreground_generation.picture.init_image.data = b"other"
    assert hashed(one) == hashed(same)
    assert len({hashed(whole_spec()), hashed(other), hashed(whole_spec(), 7)}) == 3


def hashed(spec: pb.JobSpec, keep_s: int = 0) -> bytes:
    return hash_of(spec, strip(spec), keep_s)


def test_pictures_are_taken_out_and_their_types_stay() -> None:
    spec = whole_spec()
    assert strip(spec) == {"init_image": b"bytes", "backdrop": b"behind"}
    assert [(field, m.data) for field, m in pictures_in(spec)] == [
        ("init_image", b""),
        ("backdrop", b""),
    ]
    assert spec.foreground_generation.picture.init_image.mime_type == "image/png"


def test_the_pictures_of_a_job_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = saved(pattern(), "PNG")
    spec = whole_spec()
    spec.foreground_generation.picture.init_image.data = data
    spec.foreground_generation.cutout.image.data = data
    monkeypatch.setattr("services.jobs.checks.BOUNDS", Bounds(max_bytes=2 * len(data)))
    check(spec)
    monkeypatch.setattr("services.jobs.checks.BOUNDS", Bounds(max_bytes=2 * len(data) - 1))
    with pytest.raises(Fault) as caught:
        check(spec)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE


def test_seeds_are_drawn_for_those_that_have_none() -> None:
    spec = pb.JobSpec(background_removal=pb.BackgroundRemoval(image=MEDIA))
    spec.background_removal.cutout.generated.picture.model = "p"
    draw_seeds(spec, lambda: 5)
    assert spec.background_removal.cutout.generated.picture.seed == 5
    spec = whole_spec()
    spec.foreground_generation.picture.seed = 0
    draw_seeds(spec, lambda: 5)
    assert spec.foreground_generation.picture.seed == 0


def test_what_has_alpha_is_never_jpeg() -> None:
    jpeg = Encoding(Format.JPEG, 70)
    chosen = requests.encoding_of(pb.ResultOutput(), jpeg, alpha=True)
    assert (chosen.format, chosen.quality) == (Format.WEBP, 70)
    assert requests.encoding_of(pb.ResultOutput(), jpeg, alpha=False).format is Format.JPEG
    png = pb.ResultOutput(format=pb.RESULT_FORMAT_PNG, quality=3)
    assert requests.encoding_of(png, jpeg, alpha=False) == Encoding(Format.PNG, 3)


def test_large_pictures_go_from_step_to_step_as_png() -> None:
    assert requests.between(2048, 4096).format is Format.PNM
    assert requests.between(2048, 4097).format is Format.PNG


def test_a_request_says_only_what_was_said() -> None:
    picture = pb.Picture(model="p", prompt="x", seed=4, guidance=0.0)
    picture.loras.add(lora_id="l")
    asked = requests.generate(picture, "key", 2, Encoding(Format.PNM))
    assert (asked.model, asked.seed, asked.guidance) == ("key", 6, 0.0)
    assert asked.HasField("guidance")
    assert not asked.HasField("strength")
    assert not asked.loras[0].HasField("scale")
    cutout = pb.CutoutOptions(estimated=pb.CutoutOptions.EstimatedBackdrop(), keep_alpha=True)
    cut = requests.remove_background(cutout, "m", b"x", Encoding(Format.WEBP, 50))
    assert cut.backdrop.WhichOneof("kind") == "estimated"
    assert (cut.keep_alpha, cut.output.quality) == (True, 50)
    assert cut.output.format == matte_pb2.IMAGE_FORMAT_WEBP


@pytest.mark.parametrize(
    ("size", "most", "becomes"),
    [
        ((4000, 3000), "1048576", (1152, 832)),
        ((100, 50), "5000", (100, 50)),
        ((100, 50), "none", (100, 50)),
        ((9000, 10), "4096", (1920, 64)),
    ],
)
def test_a_picture_is_shrunk_to_what_its_model_paints(
    size: tuple[int, int], most: str, becomes: tuple[int, int]
) -> None:
    picture = pb.Picture(width_px=size[0], height_px=size[1])
    fault = Fault(Reason.IMAGE_TOO_LARGE, "Too large.", metadata={"max_px": most})
    assert shrunk(picture, fault) == (becomes != size)
    assert (picture.width_px, picture.height_px) == becomes


def status(*, reconciled: bool = True, lost: str = "") -> sched.Status:
    kinds = (("b", DIFFUSION, "f"), ("a", DIFFUSION, "f"), ("chat", "llm", ""))
    models = [
        sched.Status.ModelStatus(model_key=key, service=service, family=family)
        for key, service, family in kinds
    ]
    gone = [lost] if lost else []
    return sched.Status(models=models, reconciled=reconciled, unreachable_workers=gone)


@pytest.mark.parametrize(("name", "key"), [("b", "b"), ("f", "a"), ("", "a")])
def test_a_name_means_a_model_or_one_of_a_family(name: str, key: str) -> None:
    assert find(status(), name, DIFFUSION, "model") == key


@pytest.mark.parametrize(
    ("name", "seen", "reason"),
    [
        ("nobody", status(), Reason.MODEL_NOT_FOUND),
        ("chat", status(), Reason.INVALID_REQUEST),
        ("nobody", status(reconciled=False), Reason.SERVICE_UNAVAILABLE),
        ("nobody", status(lost=DIFFUSION), Reason.SERVICE_UNAVAILABLE),
        ("nobody", status(lost="matte"), Reason.MODEL_NOT_FOUND),
    ],
)
def test_a_name_that_means_none_is_refused_for_what_it_is(
    name: str, seen: sched.Status, reason: Reason
) -> None:
    with pytest.raises(Fault) as caught:
        find(seen, name, DIFFUSION, "model")
    assert caught.value.reason is reason
