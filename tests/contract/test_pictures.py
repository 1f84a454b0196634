"""Pictures over real HTTP, asked for by OpenAI's own client and by others."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from PIL import Image

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.models.v1 import models_pb2
from tests.edge_kit import MODEL, House, opened
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
    preview,
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


# Streams.


async def test_a_stream_shows_partial_pictures(house: House) -> None:
    stream = await house.openai.images.generate(
        model=PAINTER, prompt="A lake", stream=True, partial_images=2, quality="hd"
    )
    events = [event async for event in stream]
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    first, second, done = events
    assert first.type == "image_generation.partial_image"
    assert second.type == "image_generation.partial_image"
    assert (first.partial_image_index, second.partial_image_index) == (0, 1)
    assert [base64.b64decode(one.b64_json)[3:] for one in (first, second)] == [b"2", b"3"]
    assert (first.output_format, first.size, first.quality) == ("jpeg", "64x128", "auto")
    assert done.type == "image_generation.completed"
    assert base64.b64decode(done.b64_json) == PNG
    assert (done.output_format, done.usage.total_tokens) == ("png", 0)
    assert (done.model_extra or {})["metrics"]["seed"] == 77
    (sent,) = darkroom(house).requests
    assert (sent.preview.every_steps, sent.preview.max_px) == (1, 512)


async def test_a_stream_of_edits_has_their_names(house: House) -> None:
    stream = await house.openai.images.edit(
        model=PAINTER,
        prompt="A lake",
        image=("a.png", PNG),
        n=2,
        stream=True,
        partial_images=1,
    )
    types = [event.type async for event in stream]
    assert types == ["image_edit.partial_image", "image_edit.completed"] * 2


async def test_a_silent_stream_says_what_is_waited_for(tmp_path: Path) -> None:
    async with opened_with_pictures(tmp_path, keepalive_s=0.05) as house:
        house.peers.admit = house.peers.queues
        body = {"model": PAINTER, "prompt": "A lake", "stream": True}
        async with house.http.stream("POST", GENERATIONS, json=body) as answer:
            async for line in answer.aiter_lines():
                if "queued behind 3" in line:
                    break
        await house.peers.seen("admit over")


async def test_a_stream_that_fails_in_the_middle_raises(house: House) -> None:
    async def fails(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(1)
        yield preview(3)
        raise Fault(Reason.SLOW_READER, "Read faster.")

    darkroom(house).paint = fails
    stream = await house.openai.images.generate(
        model=PAINTER, prompt="A lake", stream=True, partial_images=1
    )
    with pytest.raises(openai.APIError, match="Read faster"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_ends_without_a_picture_has_crashed(
    house: House, stream: bool
) -> None:
    async def ends(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(1)
        yield painted(1)

    darkroom(house).paint = ends
    body = {"model": PAINTER, "prompt": "A lake", "stream": stream}
    answer = await house.http.post(GENERATIONS, json=body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_crashed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_picture(house: House, stream: bool) -> None:
    async def hangs(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(1)
        await asyncio.Event().wait()

    darkroom(house).paint = hangs
    body = json.dumps({"model": PAINTER, "prompt": "A lake", "stream": stream}).encode()
    _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
    head = f"POST {GENERATIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await house.peers.seen("paint")
    writer.transport.abort()
    await house.peers.seen("paint over")
    await house.peers.seen("admit over")


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


# Models.


@pytest.mark.parametrize("path", [GENERATIONS, BACKGROUNDS])
async def test_a_model_that_does_not_paint_is_not_woken(house: House, path: str) -> None:
    house.peers.models += [
        models_pb2.Model(key="fake", kind=models_pb2.MODEL_KIND_DIFFUSION, service="simulated"),
    ]
    for model in (MODEL, "fake"):
        told = await refused(house, path, json={"model": model, "prompt": "A lake"})
        assert (told["code"], told["param"]) == ("modality_unsupported", "model")
        assert f"`{model}`" in told["message"]


async def test_which_model_paints_when_none_is_named(house: House, tmp_path: Path) -> None:
    told = await refused(house, GENERATIONS, json={"prompt": "A lake"})
    assert (told["param"], "several" in told["message"]) == ("model", True)
    house.peers.models.pop()
    assert (await house.http.post(GENERATIONS, json={"prompt": "A lake"})).status_code == 200
    assert house.peers.admits[0].model == PAINTER
    (tmp_path / "b").mkdir()
    async with opened_with_pictures(tmp_path / "b", default_image_model=EDITOR) as other:
        for path in (GENERATIONS, BACKGROUNDS):
            await other.http.post(path, json={"prompt": "A lake"})
        assert [admit.model for admit in other.peers.admits] == [EDITOR, EDITOR]


async def test_a_model_nobody_has(house: House) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.MODEL_NOT_FOUND, "No.")
        yield

    house.peers.admit = refuses
    with pytest.raises(openai.NotFoundError, match="`dall-e-3` does not exist"):
        await house.openai.images.generate(model="dall-e-3", prompt="A lake")


async def test_a_picture_that_can_never_fit_is_refused_at_once(house: House) -> None:
    def plan(_asked: Any) -> Any:
        told = {"param": "width_px", "max_px": "100"}
        raise Fault(Reason.IMAGE_TOO_LARGE, "Too large.", metadata=told)

    darkroom(house).plan = plan
    told = await refused(house, GENERATIONS, json={"model": PAINTER, "prompt": "A lake"})
    assert (told["code"], told["param"]) == ("image_too_large", "size")


# Refusals.


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": "é" * 20_000}, "prompt"),
        ({"n": 11}, "n"),
        ({"size": "0x64"}, "size"),
        ({"size": "64"}, "size"),
        ({"width": 64}, "height"),
        ({"width": 64, "height": 64, "size": "64x64"}, "size"),
        ({"response_format": "url"}, "response_format"),
        ({"output_format": "gif"}, "output_format"),
        ({"output_compression": 50}, "output_compression"),
        ({"background": "transparent"}, "background"),
        ({"partial_images": 1}, "partial_images"),
        ({"partial_images": 4, "stream": True}, "partial_images"),
        ({"steps": 151}, "steps"),
        ({"steps": "4"}, "steps"),
        ({"guidance": 31}, "guidance"),
        ({"sampler": "magic"}, "sampler"),
        ({"strength": 0.5}, "strength"),
        ({"seed": -2}, "seed"),
        ({"seed": 2**63 - 1, "n": 2}, "seed"),
        ({"loras": [{}]}, "loras[0]"),
        ({"loras": [{"lora_id": "a", "path": "/a"}]}, "loras[0]"),
        ({"loras": [{"lora_id": "a"}] * 9}, "loras"),
        ({"loras": [{"path": "/a", "filename": "b"}]}, "loras[0].filename"),
        ({"svg": {"model": "x"}}, "svg"),
        ({"image": "!!"}, "image"),
        ({"image": "file:///etc/passwd"}, "image"),
        ({"image": "data:text/plain,hello"}, "image"),
        ({"image": base64.b64encode(b"<svg/>").decode()}, "image"),
        ({"model": EDITOR, "reference_images": [PNG_WORDS, ""]}, "reference_images[1]"),
        ({"model": EDITOR, "reference_images": [PNG_WORDS, "AAAA"]}, "reference_images[1]"),
        ({"reference_images": [PNG_WORDS] * 9}, "reference_images"),
    ],
)
async def test_a_field_that_is_wrong_is_named(
    house: House, fields: dict[str, Any], param: str
) -> None:
    body = {"model": PAINTER, "prompt": "A lake", **fields}
    assert (await refused(house, GENERATIONS, json=body))["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "image"),
        ({"image": [PNG_WORDS] * 10}, "image"),
        ({"images": [PNG_WORDS] * 9}, "images[8]"),
        ({"images": [{"file_id": "f"}]}, "images[0].file_id"),
        ({"image": PNG_WORDS, "mask": "https://u:p@example.com/m.png"}, "mask"),
        ({"image": "http://127.0.0.1/a.png"}, "image"),
    ],
)
async def test_an_edit_that_is_wrong_names_the_field(
    house: House, fields: dict[str, Any], param: str
) -> None:
    body = {"model": EDITOR, "prompt": "A lake", **fields}
    assert (await refused(house, EDITS, json=body))["param"] == param


async def test_transparency_is_pointed_to_where_it_is_made(house: House) -> None:
    body = {"model": PAINTER, "prompt": "A cat", "background": "transparent"}
    told = await refused(house, GENERATIONS, json=body)
    assert "/v1/images/foreground-generations/jobs" in told["message"]


async def test_a_path_of_this_machine_is_for_those_who_are_on_it(house: House) -> None:
    body = {"model": PAINTER, "prompt": "A cat", "loras": [{"path": "/a.safetensors"}]}
    answer = await house.http.post(GENERATIONS, json=body, headers={"x-forwarded-for": "1.2.3.4"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "lora_path_refused")
    assert answer.json()["error"]["param"] == "loras[0].path"


async def test_a_body_of_pictures_may_be_larger_than_others_and_no_larger(tmp_path: Path) -> None:
    async with opened_with_pictures(tmp_path, max_body_mib=1, max_picture_body_mib=3) as house:
        large = {"image": io.BytesIO(PNG + b"\0" * (2 << 20))}
        data = {"model": PAINTER, "prompt": "A boat"}
        assert (await house.http.post(EDITS, data=data, files=large)).status_code == 200
        assert len(darkroom(house).requests[0].init_image.data) == len(PNG) + (2 << 20)
        huge = {"image": io.BytesIO(PNG + b"\0" * (3 << 20))}
        answer = await house.http.post(EDITS, data=data, files=huge)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "payload_too_large")


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
