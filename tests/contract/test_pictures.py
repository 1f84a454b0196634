"""Pictures over real HTTP, asked for by OpenAI's own client and by others."""

import base64
import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from tests.edge_kit import House, opened
from tests.picture_kit import (
    EDITOR,
    PAINTER,
    PNG,
    PNG_WORDS,
    darkroom,
    finish,
    opened_with_pictures,
    painted,
    png,
    started,
)

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
BACKGROUNDS, STYLE = "/v1/images/backgrounds", "/v1/images/backgrounds/style"
DATA_URL = f"data:image/png;base64,{PNG_WORDS}"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened_with_pictures(tmp_path) as house:
        yield house


async def refused(house: House, path: str, **sent: Any) -> Any:
    answer = await house.http.post(path, **sent)
    assert 400 <= answer.status_code < 500, answer.text
    assert not house.peers.admits
    return answer.json()["error"]


# Generations.


async def test_the_official_client_gets_its_picture(house: House) -> None:
    told = await house.openai.images.generate(
        model=PAINTER,
        prompt="A lake at dawn",
        size="64x128",
        quality="high",
        output_format="webp",
        output_compression=70,
        moderation="low",
        user="ann",
        extra_body={"seed": 5, "steps": 4, "sampler": "euler_a", "negative_prompt": "boats"},
    )
    assert told.data is not None
    assert base64.b64decode(told.data[0].b64_json or "") == PNG
    assert (told.size, told.quality, told.output_format) == ("64x128", "high", "png")
    assert told.background == "opaque"
    extra = told.model_extra or {}
    assert extra["metrics"]["seed"] == 5
    assert extra["metrics"]["size_rounded"] is True
    assert (extra["metrics"]["queue_wait_ms"], extra["metrics"]["denoise_ms"]) == (7, 40)
    (sent,) = darkroom(house).requests
    assert (sent.model, sent.prompt, sent.negative_prompt) == ("smol-a", "A lake at dawn", "boats")
    assert (sent.width_px, sent.height_px, sent.steps, sent.seed) == (64, 128, 4, 5)
    assert (sent.output.format, sent.output.quality) == (pb.IMAGE_FORMAT_WEBP, 70)
    assert sent.sampler == pb.SAMPLER_EULER_A
    assert (sent.transient_lease_id, sent.transient_mib) == ("l1", 90)


async def test_what_a_picture_comes_to_is_asked_before_its_turn(house: House) -> None:
    body = {"model": PAINTER, "prompt": "A lake", "size": "640x480", "vae_tiling": "off"}
    assert (await house.http.post(GENERATIONS, json=body)).status_code == 200
    (plan,), (admit,) = darkroom(house).plans, house.peers.admits
    assert (plan.model, plan.width_px, plan.height_px) == (PAINTER, 640, 480)
    assert (plan.vae_tiling, plan.input_images) == (pb.VAE_TILING_OFF, 0)
    assert (admit.model, admit.preferred_transient_mib) == (PAINTER, 900)
    assert (admit.minimum_transient_mib, admit.tier) == (300, common_pb2.TIER_FREE)


async def test_several_pictures_are_as_many_turns_and_seeds(house: House) -> None:
    told = await house.openai.images.generate(
        model=PAINTER, prompt="A lake", n=3, extra_body={"seed": 2**63 - 3}
    )
    assert [one.seed for one in darkroom(house).requests] == [2**63 - 3 + i for i in range(3)]
    assert len(house.peers.admits) == 3
    assert [image.model_dump()["seed"] for image in told.data or ()] == [
        2**63 - 3 + i for i in range(3)
    ]
    assert (told.model_extra or {})["metrics"]["total_ms"] == 150


@pytest.mark.parametrize("seed", [{}, {"seed": -1}])
async def test_without_a_seed_none_is_sent(house: House, seed: dict[str, int]) -> None:
    body = {"model": PAINTER, "prompt": "A lake", "n": 2, **seed}
    assert (await house.http.post(GENERATIONS, json=body)).status_code == 200
    assert not any(one.HasField("seed") for one in darkroom(house).requests)


async def test_a_picture_out_of_the_cache_says_so(house: House) -> None:
    async def cached(request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(request.seed)
        known = painted(request.seed)
        known.image.origin = pb.IMAGE_ORIGIN_EXACT_RESULT_CACHE
        yield known
        yield finish()

    darkroom(house).paint = cached
    body = {"model": PAINTER, "prompt": "A lake", "seed": 3, "no_result_cache": True}
    answer = (await house.http.post(GENERATIONS, json=body)).json()
    assert answer["data"][0]["origin"] == "exact_result_cache"
    assert answer["metrics"]["origin"] == "exact_result_cache"
    assert darkroom(house).requests[0].reuse.no_result_cache


async def test_pictures_to_start_from_and_to_look_at(house: House) -> None:
    body = {
        "model": EDITOR,
        "prompt": "A lake",
        "image": {"image_url": DATA_URL},
        "strength": 0.4,
        "reference_images": [PNG_WORDS, DATA_URL],
        "loras": [{"lora_id": "ink", "scale": 0.5}, {"path": "/l/a.safetensors"}],
    }
    assert (await house.http.post(GENERATIONS, json=body)).status_code == 200
    (sent,), (plan,) = darkroom(house).requests, darkroom(house).plans
    assert (sent.init_image.data, sent.init_image.mime_type) == (PNG, "image/png")
    assert [one.data for one in sent.reference_images] == [PNG, PNG]
    assert sent.strength == pytest.approx(0.4)
    assert [(one.lora_id, one.path) for one in sent.loras] == [
        ("ink", ""),
        ("", "/l/a.safetensors"),
    ]
    assert (plan.width_px, plan.height_px, plan.input_images) == (4, 3, 3)


# Edits.


async def test_a_mask_paints_over_the_first_picture(house: House) -> None:
    told = await house.openai.images.edit(
        model=EDITOR,
        prompt="A boat",
        image=[("a.png", png(8, 8)), ("b.png", PNG)],
        mask=("m.png", png(8, 8)),
        extra_body={"steps": 3, "loras": json.dumps([{"lora_id": "ink"}])},
    )
    assert told.data is not None
    (sent,) = darkroom(house).requests
    assert (sent.init_image.data, sent.mask.data) == (png(8, 8), png(8, 8))
    assert [one.data for one in sent.reference_images] == [PNG]
    assert (sent.steps, sent.loras[0].lora_id) == (3, "ink")
    assert not sent.HasField("strength")
    (plan,) = darkroom(house).plans
    assert (plan.width_px, plan.height_px, plan.input_images) == (8, 8, 2)


@pytest.mark.parametrize(
    ("model", "fields", "looked_at"),
    [
        (PAINTER, {}, False),
        (EDITOR, {}, True),
        (EDITOR, {"strength": "0.5"}, False),
    ],
)
async def test_one_picture_is_started_from_or_looked_at_as_the_model_has_it(
    house: House, model: str, fields: dict[str, str], looked_at: bool
) -> None:
    files = {"image": ("a.png", PNG)}
    data = {"model": model, "prompt": "A boat", "size": "auto", "user": "", **fields}
    answer = await house.http.post(EDITS, data=data, files=files)
    assert answer.status_code == 200, answer.text
    (sent,) = darkroom(house).requests
    assert (sent.HasField("init_image"), len(sent.reference_images)) == (
        not looked_at,
        int(looked_at),
    )


async def test_several_pictures_are_looked_at(house: House) -> None:
    images = [{"image_url": DATA_URL}, PNG_WORDS]
    body = {"model": EDITOR, "prompt": "Both", "images": images}
    assert (await house.http.post(EDITS, json=body)).status_code == 200
    (sent,) = darkroom(house).requests
    assert len(sent.reference_images) == 2
    assert not sent.HasField("init_image")


async def test_a_model_that_cannot_look_is_not_woken_to_do_so(house: House) -> None:
    body = {"model": PAINTER, "prompt": "Both", "image": [PNG_WORDS, PNG_WORDS]}
    told = await refused(house, EDITS, json=body)
    assert (told["code"], told["param"]) == ("modality_unsupported", "image[0]")
    assert f"`{PAINTER}`" in told["message"]


@pytest.mark.parametrize("form", ["TIFF", "BMP", "JPEG"])
async def test_a_picture_of_any_form_is_planned_at_its_own_size(house: House, form: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (192, 128)).save(file, form)
    picture = base64.b64encode(file.getvalue()).decode()
    body = {"model": PAINTER, "prompt": "A boat", "image": picture}
    answer = await house.http.post(EDITS, json=body)
    assert answer.status_code == 200, answer.text
    (planned,) = darkroom(house).plans
    assert (planned.width_px, planned.height_px) == (192, 128)


async def test_a_picture_whose_size_cannot_be_read_does_not_wait_for_a_model(house: House) -> None:
    tiff = base64.b64encode(b"II*\x00" + b"\0" * 64).decode()
    body = {"model": PAINTER, "prompt": "A boat", "image": tiff}
    told = await refused(house, EDITS, json=body)
    assert (told["code"], told["param"]) == ("invalid_image", "image")
    assert (await house.http.post(EDITS, json={**body, "size": "64x64"})).status_code == 200


@pytest.mark.parametrize(
    ("metadata", "param"),
    [
        ({"param": "init_image"}, "image"),
        ({"param": "mask"}, "mask"),
        ({"param": "width_px"}, "size"),
        ({"param": "steps"}, "steps"),
        ({}, None),
    ],
)
async def test_what_the_engine_refuses_is_told_in_the_words_of_the_request(
    house: House, metadata: dict[str, str], param: str | None
) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        name = next(iter(metadata.values()), "it")
        raise Fault(Reason.INVALID_IMAGE, f"`{name}` is broken.", metadata=metadata)
        yield

    darkroom(house).paint = refuses
    body = {"model": PAINTER, "prompt": "A boat", "image": PNG_WORDS, "mask": PNG_WORDS}
    answer = await house.http.post(EDITS, json=body)
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert (told["code"], told["param"]) == ("invalid_image", param)
    assert f"`{param or 'it'}` is broken" in told["message"]


# Backdrops.


async def test_backdrops_are_painted_when_nothing_else_is_to_be_done(tmp_path: Path) -> None:
    async with opened_with_pictures(tmp_path, default_background_model=PAINTER) as house:
        headers = {"x-cohabit-tier": "paid"}
        body = {"prompt": "A wall", "size": "64x64"}
        answer = await house.http.post(BACKGROUNDS, json=body, headers=headers)
        assert answer.status_code == 200
        answer = await house.http.post(
            STYLE, data={"prompt": "A wall", "strength": "0.3"}, files={"image": PNG}
        )
        assert answer.status_code == 200, answer.text
        assert [admit.model for admit in house.peers.admits] == [PAINTER, PAINTER]
        assert {admit.tier for admit in house.peers.admits} == {common_pb2.TIER_BACKGROUND}
        plain, styled = darkroom(house).requests
        assert (plain.HasField("init_image"), styled.init_image.data) == (False, PNG)
        assert styled.strength == pytest.approx(0.3)


# Around them.


async def test_loras_are_listed(house: House) -> None:
    ink = {
        "id": "ink",
        "filename": "a.safetensors",
        "size_bytes": 9,
        "created": 5,
        "base": "sdxl",
        "object": "lora",
    }
    assert (await house.http.get("/v1/loras")).json() == {"data": [ink], "object": "list"}
    assert (await house.http.get("/v1/loras?model=other")).json()["data"] == []


async def test_the_routes_are_described_where_they_are(house: House, tmp_path: Path) -> None:
    document = (await house.http.get("/openapi.json")).json()
    for path in (GENERATIONS, EDITS, BACKGROUNDS, STYLE):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert set(content) == {"application/json", "multipart/form-data"}
        assert "403" in document["paths"][path]["post"]["responses"]
    assert "LoraList" in document["components"]["schemas"]
    assert "pictures" in [tag["name"] for tag in document["tags"]]
    references = set(_references(document))
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references <= known


def _references(told: Any) -> Iterator[str]:
    if isinstance(told, dict):
        for name, value in told.items():
            if name == "$ref":
                yield value
            yield from _references(value)
    elif isinstance(told, list):
        for value in told:
            yield from _references(value)


async def test_a_house_without_painters_has_no_such_routes(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        answer = await house.http.post(GENERATIONS, json={"prompt": "A lake"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
        assert (await house.http.get("/v1/loras")).status_code == 404
        document = (await house.http.get("/openapi.json")).json()
        assert "ImagesAnswer" not in document["components"]["schemas"]
