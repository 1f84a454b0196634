"""Pictures, cutouts and jobs from the command line: the whole house, the real libraries."""

import asyncio
import io
import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from PIL import Image
from skimage import data

from tests.command_kit import DEADLINE_S, Command
from tests.integration.house import ROOT, House, free_port, started, until
from tests.tiny_diffusion import make_tiny_diffusion

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

NETWORK = ROOT / "models" / "u2netp.onnx"
STEPS = 3


@dataclass(frozen=True)
class Room:
    """A running house, its command, and a folder to work in."""

    house: House
    command: Command
    folder: Path

    async def job(self, **body: Any) -> str:
        async with httpx.AsyncClient(base_url=self.house.url, trust_env=False) as http:
            asked = {"prompt": "a harbour", "output_format": "png", **body}
            answer = await http.post("/v1/images/generations/jobs", json=asked)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder, port = tmp_path_factory.mktemp("house"), free_port()
    made = make_tiny_diffusion(folder / "models", lora=True)
    assert made.lora is not None
    (folder / "models" / "loras").mkdir()
    made.lora.rename(folder / "models" / "loras" / "ink.safetensors")
    files = {
        "diffusion_model": str(made.diffusion_model),
        "llm": str(made.llm),
        "taesd": str(made.taesd),
    }
    tiny = {
        "family": "ovis-image",
        "files": files,
        "defaults": {"steps": STEPS, "width_px": 64, "height_px": 64},
    }
    configured = {
        "run_dir": "run",
        "state_dir": "state",
        "broker": {"device": "cpu"},
        "matte": {"models": {"u2netp": {"path": str(NETWORK)}}},
        "diffusion": {"models": {"tiny": tiny}, "lora_dir": "loras"},
        "jobs": {},
        "edge": {"listen": f"127.0.0.1:{port}"},
    }
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(configured))
    with started(path, port) as house:
        yield Room(house, Command(path), folder)


def pixels(raw: bytes) -> "np.ndarray[Any, Any]":
    with Image.open(io.BytesIO(raw)) as picture:
        return np.asarray(picture.convert("RGBA"))


async def test_a_picture_is_painted_into_a_file(room: Room) -> None:
    lake = room.folder / "lake.png"
    words = ("paint", "tiny", "a lake", "--seed", "7", "--size", "96x64", "--steps", "2")
    code, out, err = await room.command.run(*words, "-o", str(lake))
    assert (code, err) == (0, ""), err
    assert out.startswith(f"{lake}: 96x64, seed 7, 2 steps, ")
    with Image.open(lake) as picture:
        assert (picture.format, picture.size) == ("PNG", (96, 64))
    first = lake.read_bytes()
    # The same again is the same; another negative prompt and a LoRA are not.
    code, _, err = await room.command.run(*words, "-o", str(lake))
    assert (code, err) == (1, f"{lake} exists; add --force to write over it, or name another.\n")
    code, out, _ = await room.command.run(*words, "-o", str(lake), "--force", "--json")
    told = json.loads(out)
    assert (code, told["seed"], told["width_px"], told["file"]) == (0, 7, 96, str(lake))
    assert lake.read_bytes() == first
    inked = ("--lora", "ink:2", "--force")
    assert (await room.command.run(*words, "-o", str(lake), *inked))[0] == 0
    assert lake.read_bytes() != first
    assert sorted(path.name for path in room.folder.glob("*lake*")) == ["lake.png"]


async def test_what_cannot_be_painted_is_a_sentence(room: Room) -> None:
    async def refused(*words: str) -> str:
        output = str(room.folder / "x.png")
        code, said, err = await room.command.run("paint", *words, "--output", output)
        assert (code, said) == (1, ""), err
        assert err.count("\n") == 1
        assert not list(room.folder.glob("*x.png*"))
        return err

    assert "There is no model 'tinny'; there are: tiny." in await refused("tinny", "a lake")
    assert "is no model that paints; there are: tiny." in await refused("u2netp", "a lake")
    assert "no LoRA" in await refused("tiny", "a lake", "--lora", "no-such-ink")
    assert "`--size`" in await refused("tiny", "a lake", "--size", "16384x16384")
    assert "`--lora`" in await refused("tiny", "a lake", "--lora", "ink:9")


async def test_ctrl_c_gives_the_picture_up_at_the_engine(room: Room) -> None:
    slow = ("paint", "tiny", "a lake", "--steps", "150", "--size", "512x512")
    output = room.folder / "slow.png"
    async with room.command.on_terminal(*slow, "-o", str(output)) as terminal:
        await terminal.until(r"step \d+ of 150")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until("Gave the picture up")
        assert await terminal.ended() == 128 + signal.SIGINT

    async def idle() -> bool:
        return (await room.house.status()).permits_in_use == 0

    await until(idle, DEADLINE_S, "the permit's end")
    assert not output.exists()


async def test_a_subject_is_cut_out_into_a_file(room: Room) -> None:
    photograph, cut = room.folder / "coffee.jpg", room.folder / "cut.webp"
    Image.fromarray(data.coffee()).save(photograph)
    words = ("cutout", str(photograph), "--output")
    code, out, err = await room.command.run(*words, str(cut))
    assert (code, err) == (0, ""), err
    assert out.startswith(f"{cut}: 600x400, ")
    alpha = pixels(cut.read_bytes())[..., 3]
    assert 0.05 < float((alpha > 200).mean()) < 0.95
    red = room.folder / "red.jpg"
    assert (await room.command.run(*words, str(red), "--background", "red"))[0] == 0
    ground = pixels(red.read_bytes())[..., :3][alpha == 0]
    assert np.abs(ground.astype(int) - (255, 0, 0)).mean() < 12
    matte = room.folder / "matte.png"
    code, out, _ = await room.command.run(*words, str(matte), "--matte", "--json")
    assert (code, json.loads(out)["mime_type"]) == (0, "image/png")
    assert np.abs(pixels(matte.read_bytes())[..., 0].astype(int) - alpha).max() <= 1
    code, _, err = await room.command.run(*words, str(cut), "--force", "--background", "rot")
    assert code == 1
    assert "`--background" in err
    (room.folder / "none.png").write_bytes(b"no picture")
    code, _, err = await room.command.run("cutout", str(room.folder / "none.png"), "-o", "y.webp")
    assert (code, err.count("\n")) == (1, 1)
    assert "PICTURE" in err


async def test_a_job_is_watched_over_a_kill_and_saved(room: Room) -> None:
    # So large that the first is being painted still when the command looks for the first time.
    job = await room.job(n=3, seed=5, size="192x192", steps=15)
    folder = room.folder / "harbours"
    watching = asyncio.create_task(
        room.command.run("jobs", job, "--watch", "--save", str(folder), "--json")
    )

    async def one_done() -> bool:
        _, out, _ = await room.command.run("jobs", job, "--json")
        return any(step["state"] == "done" for step in json.loads(out)["steps"])

    await until(one_done, DEADLINE_S, "the first picture")
    room.house.process("services.jobs").kill()
    code, out, err = await watching
    assert code == 0, err
    assert "running: painting" in err  # which of the three it is at, is a matter of time
    told = json.loads(out)
    names = [f"image-{index}.png" for index in range(3)]
    assert [Path(path).name for path in told["files"].values()] == names
    assert sorted(path.name for path in folder.iterdir()) == names
    code, _, err = await room.command.run("jobs", job, "--save", str(folder))
    assert (code, err.count("\n"), "add --force" in err) == (1, 1, True)
    code, out, _ = await room.command.run("jobs")
    assert code == 0
    assert f"{job}  images  succeeded" in out


async def test_a_job_is_ended(room: Room) -> None:
    job = await room.job(n=20, size="512x512", steps=100)
    async with room.command.on_terminal("jobs", job, "--watch") as terminal:
        await terminal.until("painting 1 of 20")
        code, out, _ = await room.command.run("jobs", job, "--cancel")
        assert (code, out.startswith(f"{job}: ")) == (0, True)
        await terminal.until("cancelled")
        assert await terminal.ended() == 1
    code, _, err = await room.command.run("jobs", job, "--save", str(room.folder / "out"))
    assert (code, err) == (1, f"{job} has no results: it was cancelled.\n")
    assert not (room.folder / "out").exists()
