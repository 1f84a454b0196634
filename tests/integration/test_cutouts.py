"""Photographs through the whole house: the official client and curl, the real network.

How good a cutout is, the matting service's own tests and bench say. Here: it is one, of the right
size and form, and its edges have lost the ground that they were photographed on.
"""

import base64
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import yaml
from PIL import Image
from skimage import data

from tests.integration.house import ROOT, House, free_port, started

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

NETWORK = ROOT / "models" / "u2netp.onnx"
ROUTE = "/images/background-removals"
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee")
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, port = tmp_path_factory.mktemp("h"), free_port()
    configured = {
        "run_dir": "run",
        "state_dir": "state",
        "broker": {"device": "cpu"},
        "matte": {"models": {"u2netp": {"path": str(NETWORK)}}},
        "edge": {"listen": f"127.0.0.1:{port}"},
    }
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(configured))
    with started(path, port) as house:
        yield house


@pytest.fixture(scope="module")
def client(house: House) -> Iterator[openai.OpenAI]:
    http = openai.DefaultHttpxClient(trust_env=False)
    base = f"{house.url}/v1"
    with openai.OpenAI(base_url=base, api_key="none", max_retries=0, http_client=http) as client:
        yield client.with_options(timeout=DEADLINE_S)


def photograph(name: str) -> tuple[bytes, tuple[int, int]]:
    """A JPEG and its size."""
    picture = Image.fromarray(getattr(data, name)())
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=92)
    return out.getvalue(), picture.size


def cut(client: openai.OpenAI, raw: bytes, **fields: str) -> httpx.Response:
    return client.post(
        ROUTE,
        cast_to=httpx.Response,
        body=fields,
        files={"image": ("photo.jpg", raw, "image/jpeg")},
        options={"headers": {"content-type": "multipart/form-data"}},
    )


def pixels(raw: bytes, mode: str) -> "np.ndarray[Any, Any]":
    return np.asarray(Image.open(io.BytesIO(raw)).convert(mode))


@pytest.mark.parametrize("name", PHOTOGRAPHS)
def test_the_official_client_gets_a_cutout(client: openai.OpenAI, name: str) -> None:
    raw, size = photograph(name)
    answer = cut(client, raw)
    assert answer.headers["content-type"] == "image/webp"
    assert Image.open(io.BytesIO(answer.content)).size == size
    alpha = pixels(answer.content, "RGBA")[..., 3]
    # A subject, and a background that is gone.
    assert 0.05 < float((alpha > 200).mean()) < 0.95
    assert float((alpha < 10).mean()) > 0.05


def test_curl_gets_it_on_a_colour(house: House, tmp_path: Path) -> None:
    raw, size = photograph("chelsea")
    picture, out = tmp_path / "cat.jpg", tmp_path / "cat.png"
    picture.write_bytes(raw)
    url = f"{house.url}/v1{ROUTE}"
    form = ("-F", f"image=@{picture}", "-F", "background=#00ff00", "-F", "output_format=png")
    curl = ("curl", "-sS", "--noproxy", "*", "--fail-with-body", "-o", str(out), *form, url)
    subprocess.run(curl, check=True, timeout=DEADLINE_S)
    picture_on_green = Image.open(io.BytesIO(out.read_bytes()))
    assert (picture_on_green.format, picture_on_green.size) == ("PNG", size)
    assert "A" not in picture_on_green.mode
    rgb = pixels(out.read_bytes(), "RGB")
    assert float((rgb == (0, 255, 0)).all(axis=2).mean()) > 0.05


def test_several_answers_fit_together(client: openai.OpenAI) -> None:
    """The subject over the background that was removed is the photograph again."""
    raw, _ = photograph("coffee")
    wish = {"return_background": "true", "return_matte": "true", "output_format": "png"}
    told = cut(client, raw, **wish).json()
    found = {one["role"]: base64.b64decode(one["b64_json"]) for one in told["data"]}
    assert set(found) == {"cutout", "background", "matte"}
    alpha = pixels(found["matte"], "L").astype(float) / 255
    cutout = pixels(found["cutout"], "RGBA")
    assert not cutout[cutout[..., 3] == 0][:, :3].any()
    subject = cutout[..., :3].astype(float)
    behind = pixels(found["background"], "RGB").astype(float)
    again = subject * alpha[..., None] + behind * (1 - alpha[..., None])
    assert float(np.abs(again - pixels(raw, "RGB")).mean()) < 4
    assert told["coverage"] == pytest.approx(float(alpha.mean()), abs=0.02)
    assert told["metrics"]["network_ms"] > 0


def test_an_unknown_colour_is_told_by_its_field(client: openai.OpenAI) -> None:
    raw, _ = photograph("coffee")
    with pytest.raises(openai.BadRequestError) as raised:
        cut(client, raw, background="tomatoe")
    assert raised.value.param == "background"
    assert "tomatoe" in raised.value.message


def test_half_a_picture_is_told_by_its_field(client: openai.OpenAI) -> None:
    raw, _ = photograph("coffee")
    with pytest.raises(openai.BadRequestError) as raised:
        cut(client, raw[: len(raw) // 3])
    assert (raised.value.code, raised.value.param) == ("invalid_image", "image")
