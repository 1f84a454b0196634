"""Background removal over real HTTP: forms, JSON, the official client, curl, and refusals."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from chassis.errors import Fault, Reason
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as sched
from tests.cutout_kit import (
    BEHIND,
    MATTE,
    NETWORK,
    PAINTER,
    WEBP,
    PicturePeers,
    media,
    network,
    peers_of,
    pictures,
)
from tests.edge_kit import DEADLINE_S, House, opened
from tests.picture_kit import PNG

PATH = "/v1/images/background-removals"
B64 = base64.b64encode(PNG).decode()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path) as house:
        yield house


def error_of(answer: httpx.Response) -> Any:
    return answer.json()["error"]


async def refused(house: House, status: int, **body: Any) -> Any:
    answer = await house.http.post(PATH, json={"image": B64, **body})
    assert answer.status_code == status, answer.text
    assert peers_of(house).removals == []
    return error_of(answer)


async def cut(house: House, **body: Any) -> httpx.Response:
    answer = await house.http.post(PATH, json={"image": B64, **body})
    assert answer.status_code == 200, answer.text
    return answer


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


# What is refused, by the name of the field.


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background_prompt": "a beach"}, "background_prompt"),
        ({"background_strength": 0.5}, "background_strength"),
        ({"output_format": "jpeg"}, "output_format"),
        ({"output_format": "gif"}, "output_format"),
        ({"output_format": "png", "quality": 80}, "quality"),
        ({"output_format": "png", "lossless": True}, "lossless"),
        ({"output_format": "png", "webp_method": 1}, "webp_method"),
        ({"quality": 80, "output_compression": 90}, "quality"),
        ({"quality": 0}, "quality"),
        ({"webp_method": 7}, "webp_method"),
        ({"background": "not a colour!"}, "background"),
        ({"background": "#12345"}, "background"),
        ({"background": "red", "background_image": B64}, "background"),
        ({"background_image": "%"}, "background_image"),
        ({"matte_only": True, "background": "red"}, "background"),
        ({"matte_only": True, "return_background": True}, "return_background"),
        ({"return_matte": True, "response_format": "binary"}, "response_format"),
        ({"image_url": B64}, "image_url"),
        ({"image": ""}, "image"),
        ({"image": base64.b64encode(b"<svg/>").decode()}, "image"),
        ({"image": "ftp://example.com/a.png"}, "image"),
        ({"image": "http://127.0.0.1/a.png"}, "image"),
        ({"model": ""}, "model"),
        ({"n": 2}, "n"),
        ({"keep_alpha": "yes"}, "keep_alpha"),
    ],
)
async def test_a_bad_wish_is_refused_by_name(
    house: House, body: dict[str, Any], param: str
) -> None:
    error = await refused(house, 400, **body)
    assert error["param"] == param
    assert error["message"].endswith(".")


async def test_a_prompt_is_pointed_to_jobs(house: House) -> None:
    error = await refused(house, 400, background_prompt="a beach")
    assert f"POST {PATH}/jobs" in error["message"]


async def test_no_picture_at_all(house: House) -> None:
    for answer in (
        await house.http.post(PATH, json={}),
        await house.http.post(PATH, data={"background": "red"}, files={"": b""}),
        await house.http.post(PATH, files={"picture": PNG}),
        await house.http.post(PATH, files=[("image", PNG), ("image", PNG)]),
        await house.http.post(PATH, files={"image": b""}),
        await house.http.post(PATH, content=b"{", headers={"content-type": "application/json"}),
        await house.http.post(PATH, content=PNG, headers={"content-type": "image/png"}),
    ):
        assert answer.status_code == 400, answer.text
        assert error_of(answer)["message"].endswith((".", ").")), answer.text
    assert peers_of(house).removals == []


async def test_a_picture_that_never_fits_is_refused_before_it_waits(house: House) -> None:
    def refuses(_request: Any) -> Any:
        raise Fault(Reason.IMAGE_TOO_LARGE, "`image` is large.", metadata={"param": "image"})

    peers_of(house).plan = refuses
    answer = await house.http.post(PATH, files={"file": PNG})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "image_too_large")
    assert error_of(answer)["message"] == "`file` is large."
    assert house.peers.admits == []


async def test_the_larger_picture_says_what_is_lent(house: House) -> None:
    peers = peers_of(house)
    peers.plan = lambda asked: pb.PlanRemovalResponse(transient_mib=asked.width_px)
    answer = await house.http.post(PATH, files={"image": PNG, "background_image": BEHIND})
    assert answer.status_code == 200, answer.text
    assert {(one.width_px, one.height_px) for one in peers.removal_plans} == {(4, 3), (5, 4)}
    assert house.peers.admits[0].preferred_transient_mib == 5

    def refuses_the_larger(asked: Any) -> Any:
        if asked.width_px == 5:
            raise Fault(Reason.IMAGE_TOO_LARGE, "`image` is large.", metadata={"param": "image"})
        return pb.PlanRemovalResponse(transient_mib=1)

    peers.plan = refuses_the_larger
    answer = await house.http.post(PATH, files={"image": PNG, "background_image": BEHIND})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "background_image")
    assert error_of(answer)["message"] == "`background_image` is large."


async def test_while_nobody_plans_the_scheduler_decides(house: House) -> None:
    def is_away(_request: Any) -> Any:
        raise Fault(Reason.SERVICE_UNAVAILABLE, "Away.", retry_after_s=1.0)

    peers_of(house).plan = is_away
    await cut(house)
    assert house.peers.admits[0].preferred_transient_mib == 0


@pytest.mark.parametrize(
    ("fault", "status", "param"),
    [
        (Fault(Reason.INVALID_IMAGE, "`image` is cut.", metadata={"param": "image"}), 400, "file"),
        (
            Fault(
                Reason.INVALID_REQUEST, "`backdrop.color`.", metadata={"param": "backdrop.color"}
            ),
            400,
            "background",
        ),
        (
            Fault(Reason.INVALID_IMAGE, "Bad.", metadata={"param": "backdrop.image"}),
            400,
            "background_image",
        ),
        (Fault(Reason.ENGINE_CRASHED, "It stopped.", retry_after_s=1.0), 503, None),
    ],
)
async def test_what_the_engine_refuses_is_told_in_the_clients_words(
    house: House, fault: Fault, status: int, param: str | None
) -> None:
    async def refuses(_request: Any) -> Any:
        raise fault

    peers_of(house).remove = refuses
    files = {"file": PNG}
    behind = {} if param == "background" else {"background_image": BEHIND}
    wish = {"background": "tomatoe"} if param == "background" else {}
    answer = await house.http.post(PATH, files={**files, **behind}, data=wish)
    assert answer.status_code == status
    error = error_of(answer)
    assert error["param"] == param
    assert "backdrop" not in error["message"]
    assert param is None or "`image`" not in error["message"]


async def test_an_answer_without_a_picture_is_no_success(house: House) -> None:
    async def says_nothing(_request: Any) -> Any:
        return pb.RemoveBackgroundResponse()

    peers_of(house).remove = says_nothing
    answer = await house.http.post(PATH, json={"image": B64})
    assert (answer.status_code, error_of(answer)["code"]) == (503, "engine_crashed")


async def test_a_client_that_leaves_ends_the_work(house: House) -> None:
    peers = peers_of(house)
    peers.remove = peers.hangs_on
    asking = asyncio.create_task(house.http.post(PATH, json={"image": B64}))
    await peers.seen("remove")
    asking.cancel()
    await peers.seen("remove over")
    await peers.seen("admit over")


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
