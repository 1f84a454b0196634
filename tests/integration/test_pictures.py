"""Pictures through the whole house: the official client, the edge, the real diffusion library."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import yaml
from PIL import Image

from tests.integration.house import House, configuration, free_port, started
from tests.tiny_diffusion import make_tiny_diffusion

PAINTER, EDITOR = "tiny-paint", "tiny-edit"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, port = tmp_path_factory.mktemp("house"), free_port()
    path = configuration(folder, port, scheduler={"lanes": {"images": {"cost": 2}}})
    made = make_tiny_diffusion(folder / "models", lora=True)
    assert made.lora is not None
    loras = folder / "models" / "loras"
    loras.mkdir()
    made.lora.rename(loras / "ink.safetensors")
    model = {
        "family": "ovis-image",
        "files": {
            "diffusion_model": str(made.diffusion_model),
            "llm": str(made.llm),
            "taesd": str(made.taesd),
        },
        "defaults": {"steps": 2, "guidance": 1, "width_px": 64, "height_px": 64},
        "sizes": {"multiple_px": 16, "min_side_px": 16, "max_side_px": 2048, "max_px": 1 << 20},
        "peak": {
            "condition_mib": 300,
            "denoise": {"base_mib": 8, "per_mpx_mib": 600},
            "decode": {"base_mib": 8, "per_mpx_mib": 700},
        },
        "placement": {"threads": 1},
    }
    whole = yaml.safe_load(path.read_text())
    whole["diffusion"] = {
        "models": {PAINTER: model, EDITOR: {**model, "references": True}},
        "lora_dir": "loras",
    }
    path.write_text(yaml.safe_dump(whole))
    with started(path, port) as house:
        yield house


@pytest.fixture
def client(house: House) -> Iterator[openai.OpenAI]:
    transport = openai.DefaultHttpxClient(trust_env=False)
    with openai.OpenAI(
        base_url=f"{house.url}/v1",
        api_key="none",
        max_retries=0,
        timeout=60,
        http_client=transport,
    ) as client:
        yield client


@pytest.fixture
def http(house: House) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=house.url, timeout=60, trust_env=False) as client:
        yield client


def opened(words: str | None) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(words or "")))


def drawn(width: int, height: int, mode: str = "RGB", kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert(mode).save(out, kind)
    return out.getvalue()


def test_the_same_seed_makes_the_same_bytes(client: openai.OpenAI) -> None:
    def made(seed: int, **more: Any) -> openai.types.ImagesResponse:
        return client.images.generate(
            model=PAINTER, prompt="A lake", size="60x64", extra_body={"seed": seed, **more}
        )

    first, other = made(1, no_result_cache=True), made(2)
    again, cached = made(1), made(1)
    assert first.data and other.data and again.data and cached.data  # noqa: PT018
    picture = opened(first.data[0].b64_json)
    assert (picture.format, picture.size, first.size) == ("PNG", (64, 64), "64x64")
    assert first.data[0].b64_json == again.data[0].b64_json == cached.data[0].b64_json
    assert first.data[0].b64_json != other.data[0].b64_json
    assert (cached.model_extra or {})["metrics"]["origin"] == "exact_result_cache"
    assert (first.model_extra or {})["metrics"]["size_rounded"] is True


def test_several_pictures_have_the_seeds_that_follow(client: openai.OpenAI) -> None:
    several = client.images.generate(model=PAINTER, prompt="A", n=2, extra_body={"seed": 8})
    second = client.images.generate(model=PAINTER, prompt="A", extra_body={"seed": 9})
    assert several.data is not None
    assert second.data is not None
    assert several.data[1].b64_json == second.data[0].b64_json


def test_a_stream_shows_what_is_there_so_far(client: openai.OpenAI) -> None:
    stream = client.images.generate(
        model=PAINTER,
        prompt="A lake",
        output_format="webp",
        stream=True,
        partial_images=2,
        extra_body={"steps": 6},
    )
    events = list(stream)
    assert [event.type for event in events] == [
        *["image_generation.partial_image"] * 2,
        "image_generation.completed",
    ]
    assert [opened(event.b64_json).format for event in events] == ["JPEG", "JPEG", "WEBP"]


def test_a_picture_is_painted_over_within_a_mask(client: openai.OpenAI) -> None:
    room = drawn(64, 96)
    edited = client.images.edit(
        model=PAINTER,
        prompt="A window",
        image=("room.png", room),
        mask=("mask.png", drawn(64, 96, "L")),
        extra_body={"seed": 3},
    )
    assert edited.data is not None
    assert opened(edited.data[0].b64_json).size == (64, 96)
    assert edited.size == "64x96"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_is_started_from(http: httpx.Client, kind: str) -> None:
    files = {"image": drawn(80, 64, kind=kind)}
    data = {"model": PAINTER, "prompt": "A wall", "strength": "0.5", "seed": "4"}
    answer = http.post("/v1/images/edits", data=data, files=files)
    assert answer.status_code == 200, answer.text
    assert answer.json()["size"] == "80x64"


def test_pictures_are_looked_at_by_models_that_edit(client: openai.OpenAI) -> None:
    images = [("a.png", drawn(64, 64)), ("b.png", drawn(32, 48))]
    both = client.images.edit(model=EDITOR, prompt="Both", image=images, size="auto")
    assert both.data
    with pytest.raises(openai.BadRequestError, match="does not look at pictures"):
        client.images.edit(model=PAINTER, prompt="Both", image=images)


def test_backdrops_are_painted(http: httpx.Client) -> None:
    plain = http.post("/v1/images/backgrounds", json={"model": PAINTER, "prompt": "A wall"})
    assert plain.status_code == 200, plain.text
    files, data = {"image": drawn(64, 64)}, {"model": PAINTER, "prompt": "A wall", "seed": "1"}
    styled = http.post("/v1/images/backgrounds/style", data=data, files=files)
    assert styled.status_code == 200, styled.text


def test_loras_are_listed_and_change_the_picture(http: httpx.Client) -> None:
    (lora,) = http.get("/v1/loras").json()["data"]
    body = {"model": PAINTER, "prompt": "A lake", "seed": 5, "no_result_cache": True}

    def made(**more: Any) -> Any:
        answer = http.post("/v1/images/generations", json={**body, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["data"][0]["b64_json"]

    bare = made()
    assert made(loras=[{"lora_id": lora["id"]}]) != bare
    assert made() == bare
    refused = http.post("/v1/images/generations", json={**body, "loras": [{"lora_id": "none"}]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "lora_not_found")


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("generations", {"size": "16384x16384"}, "image_too_large", "size"),
        ("generations", {"steps": 0}, None, "steps"),
        ("generations", {"model": "smollm2"}, "modality_unsupported", "model"),
        ("generations", {"model": "nobody"}, "model_not_found", "model"),
        ("edits", {"image": drawn(64, 64)[:60], "strength": 0.5}, "invalid_image", "image"),
        ("edits", {"image": b"<svg/>"}, "invalid_image", "image"),
        ("edits", {"image": b"\x89PNG\r\n\x1a\n" + b"\0" * 64}, "invalid_image", "image"),
        (
            "edits",
            {"image": drawn(64, 64), "mask": b"GIF89a\0\0\0\0"},
            "invalid_image",
            "mask",
        ),
    ],
)
def test_what_is_refused_is_named(
    http: httpx.Client, path: str, body: dict[str, Any], code: str | None, param: str
) -> None:
    said = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in body.items()
    }
    answer = http.post(f"/v1/images/{path}", json={"model": PAINTER, "prompt": "A lake", **said})
    told = answer.json()["error"]
    assert answer.status_code in (400, 404), told
    assert (told["code"], told["param"]) == (code, param), told
