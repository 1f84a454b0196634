"""Background removal over real HTTP: forms, JSON, the official client, curl."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as sched
from tests.cutout_kit import (
    B64,
    BEHIND,
    MATTE,
    NETWORK,
    PAINTER,
    PATH,
    WEBP,
    PicturePeers,
    cut,
    error_of,
    media,
    network,
    peers_of,
    pictures,
    refused,
)
from tests.edge_kit import DEADLINE_S, House, opened
from tests.picture_kit import PNG


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path) as house:
        yield house


# What comes back.


async def test_a_form_is_answered_with_the_picture_itself(house: House) -> None:
    answer = await house.http.post(PATH, files={"image": ("me.png", PNG, "image/png")})
    assert answer.status_code == 200, answer.text
    assert (answer.content, answer.headers["content-type"]) == (WEBP, "image/webp")
    assert answer.headers["x-request-id"]
    (sent,) = peers_of(house).removals
    assert (sent.image.data, sent.image.mime_type) == (PNG, "image/png")
    # The model that the scheduler granted, its permit and what the grant lent.
    assert (sent.model, sent.transient_lease_id, sent.transient_mib) == ("smol-a", "l1", 90)
    assert peers_of(house).metadata[0]["cohabit-permit-id"] == "p1"
    (admit,), (plan,) = peers_of(house).admits, peers_of(house).removal_plans
    # What a picture of its size adds, as the matting service plans it.
    assert (admit.model, admit.preferred_transient_mib) == (NETWORK, 400)
    assert (plan.model, plan.width_px, plan.height_px) == (NETWORK, 4, 3)


async def test_several_pictures_are_json(house: House) -> None:
    answer = await cut(house, return_background=True, return_matte=True)
    told = answer.json()
    assert [one["role"] for one in told["data"]] == ["cutout", "background", "matte"]
    found = [base64.b64decode(one["b64_json"]) for one in told["data"]]
    assert found == [WEBP, BEHIND, MATTE]
    assert [one["mime_type"] for one in told["data"]] == ["image/webp", "image/webp", "image/png"]
    assert {(one["width"], one["height"]) for one in told["data"]} == {(2, 2)}
    assert (told["model"], told["coverage"]) == ("smol-a", 0.25)
    assert told["metrics"]["network_ms"] == pytest.approx(12.35)
    assert (told["metrics"]["queue_wait_ms"], told["metrics"]["device"]) == (7, "cpu")


async def test_one_picture_is_json_when_it_is_asked_for(house: House) -> None:
    told = (await cut(house, response_format="b64_json", background="#FFF")).json()
    assert [(one["role"], base64.b64decode(one["b64_json"])) for one in told["data"]] == [
        ("image", WEBP)
    ]


async def test_the_matte_alone(house: House) -> None:
    answer = await cut(house, matte_only=True, output_format="jpeg")
    assert (answer.content, answer.headers["content-type"]) == (MATTE, "image/png")
    (sent,) = peers_of(house).removals
    assert (sent.matte_only, sent.return_matte) == (True, True)


async def test_every_wish_reaches_the_engine(house: House) -> None:
    form = {
        "keep_alpha": "true",
        "edge_color": "kept",
        "output_format": "webp",
        "output_compression": "0",
        "lossless": "1",
        "webp_method": "0",
        "background": "Tomato",
        "user": "me",
    }
    answer = await house.http.post(PATH, data=form, files={"file": PNG})
    assert answer.status_code == 200, answer.text
    (sent,) = peers_of(house).removals
    assert (sent.keep_alpha, sent.edge_color) == (True, pb.EDGE_COLOR_KEPT)
    assert sent.backdrop.color == "tomato"
    output = pb.ImageOutput(format=pb.IMAGE_FORMAT_WEBP, quality=1, lossless=True, webp_method=0)
    assert sent.output == output


async def test_what_is_not_asked_for_is_left_to_the_service(house: House) -> None:
    await cut(house)
    (sent,) = peers_of(house).removals
    assert sent.output == pb.ImageOutput()
    assert not sent.HasField("backdrop")
    assert sent.edge_color == pb.EDGE_COLOR_UNSPECIFIED


@pytest.mark.parametrize(
    "wish",
    [
        {"data": {"background": "estimated"}},
        {"files": {"background_image": BEHIND}},
        {"files": {"background": BEHIND}},
        {"data": {"background_image": base64.b64encode(BEHIND).decode()}},
        {"data": {"background": f"data:image/webp;base64,{base64.b64encode(BEHIND).decode()}"}},
        {"data": {"background": "transparent"}},
    ],
)
async def test_what_stands_behind(house: House, wish: dict[str, Any]) -> None:
    files = {"image": PNG, **wish.get("files", {})}
    answer = await house.http.post(PATH, data=wish.get("data"), files=files)
    assert answer.status_code == 200, answer.text
    (sent,) = peers_of(house).removals
    given = next(iter(wish.get("data", {"": ""}).values()))
    if given == "estimated":
        assert sent.backdrop.WhichOneof("kind") == "estimated"
    elif given == "transparent":
        assert not sent.HasField("backdrop")
    else:
        assert sent.backdrop.image == media(BEHIND)


@pytest.mark.parametrize("name", ["image", "image_url", "file"])
async def test_a_picture_in_json_has_several_names(house: House, name: str) -> None:
    answer = await house.http.post(PATH, json={name: f"data:image/png;base64,{B64}"})
    assert answer.status_code == 200, answer.text
    assert peers_of(house).removals[0].image.data == PNG


async def test_a_picture_of_80_mib_passes_both_ways(house: House) -> None:
    large = PNG + bytes((80 << 20) - len(PNG))

    async def returns_it(request: Any) -> Any:
        return pb.RemoveBackgroundResponse(image=request.image)

    peers_of(house).remove = returns_it
    answer = await house.http.post(PATH, files={"image": large})
    assert answer.status_code == 200, answer.text
    assert answer.content == large
    over = await house.http.post(PATH, files={"image": large, "background_image": BEHIND})
    assert (over.status_code, error_of(over)["param"]) == (413, "background_image")


# Who asks.


async def test_the_official_client_posts_raw(house: House) -> None:
    answer = await house.openai.post(
        "/images/background-removals",
        cast_to=httpx.Response,
        body={"background": "white"},
        files={"image": ("me.png", PNG, "image/png")},
        options={"headers": {"content-type": "multipart/form-data"}},
    )
    assert (answer.content, answer.headers["content-type"]) == (WEBP, "image/webp")
    assert peers_of(house).removals[0].backdrop.color == "white"


async def test_the_official_client_raises_its_own_errors(house: House) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await house.openai.post(
            "/images/background-removals", cast_to=httpx.Response, body={"image": "%%%"}
        )
    assert raised.value.param == "image"


async def test_curl_sends_a_form_and_writes_the_answer(house: House, tmp_path: Path) -> None:
    picture, out = tmp_path / "in.png", tmp_path / "out.webp"
    picture.write_bytes(PNG)
    curl = await asyncio.create_subprocess_exec(
        *("curl", "-sS", "--noproxy", "*", "--fail-with-body", "-o", str(out)),
        *("-w", "%{content_type}", "-F", f"image=@{picture}", "-F", "background=#ffffff"),
        house.url + PATH,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        told, complaint = await curl.communicate()
    assert (curl.returncode, told) == (0, b"image/webp"), complaint
    assert out.read_bytes() == WEBP
    assert peers_of(house).removals[0].backdrop.color == "#ffffff"


# Which network.


async def test_a_network_of_several_must_be_named(house: House) -> None:
    peers_of(house).models.append(network("birefnet"))
    error = await refused(house, 400)
    assert error["param"] == "model"
    assert "birefnet, u2netp" in error["message"]
    await cut(house, model="birefnet")
    assert peers_of(house).admits[-1].model == "birefnet"


async def test_twins_go_by_their_family(house: House) -> None:
    for model in peers_of(house).models:
        if model.kind == models_pb2.MODEL_KIND_MATTE:
            model.family = "cut"
    peers_of(house).models.append(network("big", family="cut"))
    await cut(house)
    assert peers_of(house).admits[-1].model == "cut"


async def test_a_configured_network_goes_first(tmp_path: Path) -> None:
    async with pictures(tmp_path, default_matte_model="other") as house:
        await cut(house)
        assert peers_of(house).admits[0].model == "other"


async def test_no_network_is_404(house: House) -> None:
    del peers_of(house).models[1]
    error = await refused(house, 404)
    assert error["code"] == "model_not_found"


async def test_a_network_that_the_scheduler_has_not_heard_of_yet_is_no_mistake(
    house: House,
) -> None:
    del peers_of(house).models[1]
    for status in (sched.Status(), sched.Status(reconciled=True, unreachable_workers=["matte"])):
        peers_of(house).status = status
        answer = await house.http.post(PATH, json={"image": B64})
        assert (answer.status_code, error_of(answer)["code"]) == (503, "service_unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_a_model_of_another_kind_is_refused_before_it_wakes(house: House) -> None:
    pretended = network("pretended")
    pretended.service = "simulated"
    peers_of(house).models.append(pretended)
    for name, why in ((PAINTER, "kind diffusion"), ("pretended", "service simulated")):
        error = await refused(house, 400, model=name)
        assert (error["param"], error["code"]) == ("model", "modality_unsupported")
        assert why in error["message"]
    assert peers_of(house).admits == []
    await cut(house)
    assert peers_of(house).admits[0].model == NETWORK


async def test_a_house_without_matting_has_no_such_route(tmp_path: Path) -> None:
    async with opened(tmp_path, ("llm",), PicturePeers) as house:
        answer = await house.http.post(PATH, json={"image": B64})
        assert (answer.status_code, error_of(answer)["code"]) == (404, "route_not_found")
        document = (await house.http.get("/openapi.json")).json()
        assert PATH not in document["paths"]


# What is told about it.


async def test_the_route_is_described(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    operation = document["paths"][PATH]["post"]
    taken = operation["requestBody"]["content"]
    assert set(taken) == {"application/json", "multipart/form-data"}
    assert "image" in taken["multipart/form-data"]["schema"]["properties"]
    assert set(operation["responses"]["200"]["content"]) >= {"application/json", "image/webp"}
    assert "cutouts" in {tag["name"] for tag in document["tags"]}
    body = document["components"]["schemas"]["RemovalBody"]["properties"]
    assert json.dumps(body).count("CSS colour name") == 1
