"""What is refused of pictures over HTTP, by the name of the field; which model paints."""

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from tests.edge_kit import MODEL, House
from tests.picture_kit import (
    EDITOR,
    PAINTER,
    PNG,
    PNG_WORDS,
    darkroom,
    opened_with_pictures,
)

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
BACKGROUNDS, STYLE = "/v1/images/backgrounds", "/v1/images/backgrounds/style"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened_with_pictures(tmp_path) as house:
        yield house


async def refused(house: House, path: str, **sent: Any) -> Any:
    answer = await house.http.post(path, **sent)
    assert 400 <= answer.status_code < 500, answer.text
    assert not house.peers.admits
    return answer.json()["error"]


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
