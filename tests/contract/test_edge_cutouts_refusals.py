"""What is refused of a background removal, by the name of the field; clients that leave."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.matte.v1 import matte_pb2 as pb
from tests.cutout_kit import (
    B64,
    BEHIND,
    PATH,
    cut,
    error_of,
    peers_of,
    pictures,
    refused,
)
from tests.edge_kit import House
from tests.picture_kit import PNG


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path) as house:
        yield house


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
