"""Jobs handed in over real HTTP, in the job service's words."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chassis.errors import Fault, Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from tests.cutout_kit import (
    BEHIND,
    NETWORK,
    PAINTER,
    media,
    network,
    painter,
    peers_of,
    pictures,
)
from tests.edge_kit import House
from tests.picture_kit import PNG

IMAGES = "/v1/images/generations/jobs"
FOREGROUNDS = "/v1/images/foreground-generations/jobs"
REMOVALS = "/v1/images/background-removals/jobs"
B64 = base64.b64encode(PNG).decode()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path) as house:
        yield house


def error_of(answer: httpx.Response) -> Any:
    return answer.json()["error"]


async def submitted(house: House, path: str, **body: Any) -> pb.JobSpec:
    answer = await house.http.post(path, json=body)
    assert answer.status_code == 202, answer.text
    return peers_of(house).submits[-1].spec


# Handing in.


async def test_a_job_is_accepted(house: House) -> None:
    answer = await house.http.post(
        REMOVALS, json={"image": B64, "keep_s": 60}, headers={"x-request-id": "r1"}
    )
    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/jobs/j1")
    assert "idempotent-replayed" not in answer.headers
    told = answer.json()
    assert (told["id"], told["object"], told["state"]) == ("j1", "job", "queued")
    assert (told["kind"], told["position"], told["results"]) == ("background_removal", 0, [])
    assert (told["created_at"], told["ended_at"], told["error"]) == (1_700_000_000, None, None)
    (sent,) = peers_of(house).submits
    assert (sent.owner, sent.request_id, sent.keep_s) == ("", "r1", 60)
    assert sent.spec.background_removal.image == media(PNG, "image/png")
    assert sent.spec.background_removal.cutout.model == NETWORK


async def test_a_form_hands_in_files(house: House) -> None:
    form = {"return_matte": "true", "output_format": "png", "idempotency_key": "k"}
    files = {"file": PNG, "background_image": BEHIND}
    answer = await house.http.post(REMOVALS, data=form, files=files)
    assert answer.status_code == 202, answer.text
    (sent,) = peers_of(house).submits
    work = sent.spec.background_removal
    assert (work.image.data, work.cutout.image, work.cutout.return_matte) == (
        PNG,
        media(BEHIND),
        True,
    )
    assert (work.output.format, sent.idempotency_key) == (pb.RESULT_FORMAT_PNG, "k")


async def test_the_official_client_hands_in(house: House) -> None:
    answer = await house.openai.post(
        "/images/foreground-generations/jobs",
        cast_to=httpx.Response,
        body={"prompt": "a deckhand", "seed": 42},
    )
    assert answer.json()["state"] == "queued"
    assert peers_of(house).submits[0].spec.foreground_generation.picture.seed == 42


async def test_a_picture_is_made_as_told(house: House) -> None:
    spec = await submitted(
        house,
        IMAGES,
        prompt="a harbour",
        negative_prompt="fog",
        size="768x1024",
        steps=9,
        guidance=0,
        seed=7,
        n=3,
        loras=[{"lora_id": "ink", "scale": -0.5}, {"lora_id": "wash"}],
        image=B64,
        strength=0.25,
        output_format="jpeg",
        output_compression=60,
    )
    work = spec.image_generation
    picture = work.picture
    assert (picture.model, picture.prompt, picture.negative_prompt) == (
        PAINTER,
        "a harbour",
        "fog",
    )
    assert (picture.width_px, picture.height_px, picture.steps) == (768, 1024, 9)
    # Exactly 0 is a wish of its own.
    assert picture.HasField("guidance")
    assert (picture.guidance, picture.seed, work.count) == (0, 7, 3)
    assert [(one.lora_id, one.scale) for one in picture.loras] == [("ink", -0.5), ("wash", 0)]
    assert not picture.loras[1].HasField("scale")
    assert (picture.init_image, picture.strength) == (media(PNG, "image/png"), 0.25)
    assert work.output == pb.ResultOutput(format=pb.RESULT_FORMAT_JPEG, quality=60)


async def test_what_is_left_out_is_left_to_the_models(house: House) -> None:
    spec = await submitted(house, IMAGES, prompt="a harbour", seed=-1, size="auto")
    assert spec.image_generation == pb.ImageGeneration(
        picture=pb.Picture(model=PAINTER, prompt="a harbour"),
        count=1,
        output=pb.ResultOutput(),
    )


async def test_a_subject_is_made_and_cut_out(house: House) -> None:
    spec = await submitted(
        house,
        FOREGROUNDS,
        prompt="a deckhand",
        width=64,
        height=96,
        return_source=True,
        background_prompt="a deck",
        background_strength=0.5,
        background_seed=3,
        background_negative_prompt="rain",
        output_format="jpeg",
    )
    work = spec.foreground_generation
    assert (work.picture.width_px, work.picture.height_px, work.return_source) == (64, 96, True)
    behind = work.cutout.generated
    assert (behind.picture.prompt, behind.picture.seed, behind.background_strength) == (
        "a deck",
        3,
        0.5,
    )
    assert (behind.picture.model, work.cutout.model) == (PAINTER, NETWORK)
    assert behind.picture.negative_prompt == "rain"


async def test_loras_come_as_json_in_a_form(house: House) -> None:
    form = {"prompt": "a harbour", "loras": '[{"lora_id": "ink"}]', "n": "2", "guidance": "3.5"}
    answer = await house.http.post(IMAGES, data=form, files={"image": PNG})
    assert answer.status_code == 202, answer.text
    work = peers_of(house).submits[0].spec.image_generation
    assert ([one.lora_id for one in work.picture.loras], work.count) == (["ink"], 2)
    assert (work.picture.guidance, work.picture.init_image.data) == (3.5, PNG)


@pytest.mark.parametrize(
    ("key", "body", "header"),
    [("k1", {"idempotency_key": "k1"}, {}), ("k2", {}, {"idempotency-key": "k2"})],
)
async def test_the_key_may_come_either_way(
    house: House, key: str, body: dict[str, str], header: dict[str, str]
) -> None:
    peers_of(house).existing = True
    answer = await house.http.post(REMOVALS, json={"image": B64, **body}, headers=header)
    assert answer.status_code == 202
    assert answer.headers["idempotent-replayed"] == "true"
    assert peers_of(house).submits[0].idempotency_key == key


async def test_configured_models_go_first(tmp_path: Path) -> None:
    defaults = {
        "default_image_model": "flux",
        "default_background_model": "wash",
        "default_matte_model": "birefnet",
    }
    async with pictures(tmp_path, **defaults) as house:
        spec = await submitted(house, FOREGROUNDS, prompt="x", background_prompt="y")
        work = spec.foreground_generation
        named = (work.picture.model, work.cutout.generated.picture.model, work.cutout.model)
        assert named == ("flux", "wash", "birefnet")


async def test_models_of_several_must_be_named(house: House) -> None:
    peers_of(house).models += [
        painter("flux"),
        network("birefnet"),
    ]
    named: dict[str, str] = {}
    for param, model in (
        ("model", "flux"),
        ("background_model", PAINTER),
        ("matte_model", NETWORK),
    ):
        body = {"prompt": "x", "background_prompt": "y", **named}
        answer = await house.http.post(FOREGROUNDS, json=body)
        assert (answer.status_code, error_of(answer)["param"]) == (400, param)
        named[param] = model
    await submitted(house, FOREGROUNDS, prompt="x", background_prompt="y", **named)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (IMAGES, {}, "prompt"),
        (IMAGES, {"prompt": ""}, "prompt"),
        (IMAGES, {"prompt": "x", "n": 65}, "n"),
        (IMAGES, {"prompt": "x", "size": "0x5"}, "size"),
        (IMAGES, {"prompt": "x", "size": "64x64", "width": 64}, "size"),
        (IMAGES, {"prompt": "x", "width": 64}, "height"),
        (IMAGES, {"prompt": "x", "height": 64}, "width"),
        (IMAGES, {"prompt": "x", "strength": 0.5}, "strength"),
        (IMAGES, {"prompt": "x", "loras": [{}]}, "loras[0].lora_id"),
        (IMAGES, {"prompt": "x", "loras": [{"lora_id": "a"}] * 9}, "loras"),
        (IMAGES, {"prompt": "x", "background": "red"}, "background"),
        (IMAGES, {"prompt": "x", "idempotency_key": ""}, "idempotency_key"),
        (IMAGES, {"prompt": "x", "keep_s": 0}, "keep_s"),
        (IMAGES, {"prompt": "x", "seed": -2}, "seed"),
        (FOREGROUNDS, {"prompt": "x", "output_format": "jpeg"}, "output_format"),
        (FOREGROUNDS, {"prompt": "x", "background_strength": 0.5}, "background_strength"),
        (FOREGROUNDS, {"prompt": "x", "background_seed": 0}, "background_seed"),
        (
            FOREGROUNDS,
            {"prompt": "x", "background": "red", "background_prompt": "y"},
            "background_prompt",
        ),
        (REMOVALS, {}, "image"),
        (REMOVALS, {"image": B64, "file": B64}, "file"),
        (REMOVALS, {"image": B64, "matte_only": True}, "matte_only"),
        (REMOVALS, {"image": "https://10.0.0.1/a.png"}, "image"),
    ],
)
async def test_a_bad_wish_is_refused_by_name(
    house: House, path: str, body: dict[str, Any], param: str
) -> None:
    answer = await house.http.post(path, json=body)
    assert answer.status_code == 400, answer.text
    error = error_of(answer)
    assert (error["param"], error["message"][-1]) == (param, ".")
    assert peers_of(house).submits == []


async def test_keys_that_differ_are_refused(house: House) -> None:
    for key in ("b", "", "\x80", "x" * 129):
        answer = await house.http.post(
            IMAGES,
            json={"prompt": "x", "idempotency_key": "a"},
            headers=[(b"idempotency-key", key.encode("latin-1"))],
        )
        assert answer.status_code == 400, answer.text
    assert peers_of(house).submits == []


@pytest.mark.parametrize(
    ("path", "theirs", "ours"),
    [
        (FOREGROUNDS, "picture.width_px", "width"),
        (FOREGROUNDS, "picture.prompt", "prompt"),
        (FOREGROUNDS, "init_image", "image"),
        (FOREGROUNDS, "backdrop", "background_image"),
        (FOREGROUNDS, "cutout.model", "matte_model"),
        (FOREGROUNDS, "cutout.generated.picture.prompt", "background_prompt"),
        (FOREGROUNDS, "cutout.generated.background_strength", "background_strength"),
        (FOREGROUNDS, "cutout.color", "background"),
        (FOREGROUNDS, "output.format", "output_format"),
        (REMOVALS, "cutout.model", "model"),
        (REMOVALS, "image", "file"),
        (REMOVALS, "backdrop", "background_image"),
    ],
)
async def test_what_the_service_refuses_is_told_in_the_clients_words(
    house: House, path: str, theirs: str, ours: str
) -> None:
    async def refuses(_request: Any) -> Any:
        raise Fault(Reason.INVALID_REQUEST, f"`{theirs}`: no.", metadata={"param": theirs})

    peers_of(house).submit = refuses
    picture = "file" if path == REMOVALS else "image"
    files = {picture: PNG, "background_image": BEHIND}
    form = {} if path == REMOVALS else {"prompt": "x"}
    answer = await house.http.post(path, data=form, files=files)
    assert answer.status_code == 400, answer.text
    error = error_of(answer)
    assert (error["param"], error["message"]) == (ours, f"`{ours}`: no.")


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.QUEUE_FULL, 429),
        (Reason.STORAGE_FULL, 507),
        (Reason.IDEMPOTENCY_KEY_REUSED, 409),
        (Reason.MODEL_NOT_FOUND, 404),
        (Reason.PAYLOAD_TOO_LARGE, 413),
    ],
)
async def test_refusals_keep_their_status(house: House, reason: Reason, status: int) -> None:
    async def refuses(_request: Any) -> Any:
        raise Fault(reason, "No.", retry_after_s=2.0 if status == 429 else None)

    peers_of(house).submit = refuses
    answer = await house.http.post(IMAGES, json={"prompt": "x"})
    assert (answer.status_code, error_of(answer)["code"]) == (status, reason.value)
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)
