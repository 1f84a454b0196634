"""`cohabit paint` and `cohabit cutout` as processes, over services that a test holds and fails."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from chassis.server import Server
from cohabit.diffusion.v1 import diffusion_pb2 as paint
from cohabit.diffusion.v1 import diffusion_pb2_grpc
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.command_kit import DEADLINE_S, Command

_BOUND = 16
Event = paint.GenerateResponse


def finished(data: bytes = b"picture", seed: int = 7) -> list[Event]:
    image = Event.Image(width_px=64, height_px=48, seed=seed)
    image.image.data = data
    return [Event(image=image), Event(finish=paint.Finish())]


def step(done: int, total: int) -> Event:
    phase = Event.PHASE_DENOISE
    return Event(progress=Event.Progress(phase=phase, done_steps=done, total_steps=total))


@dataclass
class Peers(
    scheduler_pb2_grpc.SchedulerServiceServicer,
    diffusion_pb2_grpc.DiffusionServiceServicer,
    matte_pb2_grpc.MatteServiceServicer,
):
    """They say what a test puts into them, and remember what they were asked."""

    status: scheduler_pb2.Status = field(default_factory=scheduler_pb2.Status)
    events: "asyncio.Queue[Event | Fault | None]" = field(
        default_factory=lambda: asyncio.Queue(_BOUND)
    )
    asked: list[Any] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    given_up: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: Fault | None = None

    async def ListModels(self, request: Any, context: Any) -> scheduler_pb2.ListModelsResponse:
        models = [
            models_pb2.Model(key=key, service=service, family="sdxl" if "sdxl" in key else "")
            for key, service in (("sdxl-a", "diffusion"), ("u2net", "matte"), ("qwen3", "llm"))
        ]
        return scheduler_pb2.ListModelsResponse(models=models)

    async def WatchStatus(
        self, request: Any, context: Any
    ) -> AsyncIterator[scheduler_pb2.WatchStatusResponse]:
        yield scheduler_pb2.WatchStatusResponse(status=self.status)
        await asyncio.Event().wait()

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Event]:
        self.asked.append(request)
        try:
            while (said := await self.events.get()) is not None:
                if isinstance(said, Fault):
                    raise said
                yield said
        except asyncio.CancelledError:
            self.given_up.set()
            raise

    async def RemoveBackground(
        self, request: Any, context: Any
    ) -> matte_pb2.RemoveBackgroundResponse:
        self.asked.append(request)
        if self.refusal:
            raise self.refusal
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return matte_pb2.RemoveBackgroundResponse()


@dataclass(frozen=True)
class Room:
    """The services, the command, and a folder to work in."""

    peers: Peers
    command: Command
    folder: Path

    async def say(self, *events: Event | Fault | None) -> None:
        for event in events:
            await self.peers.events.put(event)

    async def paint(self, *more: str) -> tuple[int | None, str, str]:
        output = str(self.folder / "a.png")
        return await self.command.run("paint", "sdxl-a", "a cat", "-o", output, *more)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    config, socket = tmp_path / "cohabit.yaml", f"unix:{tmp_path}/peers.sock"
    peer = ", ".join(f'{name}: "{socket}"' for name in ("scheduler", "diffusion", "matte"))
    config.write_text(f"run_dir: r\naddresses: {{{peer}}}\ndiffusion: {{}}\nmatte: {{}}\n")
    peers = Peers()  # type: ignore[abstract]  # what the commands never ask is not scripted
    server = Server((), drain_s=0.0)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(peers, server.grpc)
    diffusion_pb2_grpc.add_DiffusionServiceServicer_to_server(peers, server.grpc)
    matte_pb2_grpc.add_MatteServiceServicer_to_server(peers, server.grpc)
    await server.start(socket)
    yield Room(peers, Command(config), tmp_path)
    await server.stop()


async def test_what_is_asked_and_what_comes_of_it(room: Room) -> None:
    started = Event.Started(width_px=64, height_px=48, steps=4, seed=7)
    await room.say(Event(started=started), step(2, 4), *finished(), None)
    code, out, err = await room.paint("--seed", "7", "--lora", "ink:0.5", "--negative", "dogs")
    assert (code, err) == (0, "")
    assert out.startswith(f"{room.folder}/a.png: 64x48, seed 7, 4 steps, ")
    assert (room.folder / "a.png").read_bytes() == b"picture"
    (asked,) = room.peers.asked
    assert (asked.model, asked.prompt, asked.negative_prompt) == ("sdxl-a", "a cat", "dogs")
    assert (asked.seed, asked.loras[0].lora_id, asked.loras[0].scale) == (7, "ink", 0.5)
    assert asked.output.format == paint.IMAGE_FORMAT_PNG


async def test_a_terminal_shows_the_wait_and_the_steps(room: Room) -> None:
    loading = models_pb2.MODEL_STATE_LOADING
    room.peers.status.models.add(model_key="sdxl-a", state=loading)
    output = str(room.folder / "a.png")
    words = ("paint", "sdxl-a", "a cat", "-o", output)
    async with room.command.on_terminal(*words) as terminal:
        await terminal.until("loading the model")
        await room.say(Event(started=Event.Started(steps=4)), step(3, 4))
        await terminal.until("step 3 of 4")
        await room.say(*finished(), None)
        await terminal.until("64x48, seed 7")
        assert await terminal.ended() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("events", [[], [step(3, 4)], finished()[:1], finished()[1:]])
async def test_a_picture_that_ends_early_is_not_kept(room: Room, events: list[Event]) -> None:
    await room.say(*events, None)
    code, out, err = await room.paint()
    assert (code, out) == (1, "")
    assert err == "The picture ended before it was there; try again.\n"
    assert not (room.folder / "a.png").exists()


async def test_a_refusal_is_in_the_words_of_the_command(room: Room) -> None:
    await room.say(Fault(Reason.INVALID_REQUEST, "`loras[0].scale` must be from -4 to 4."))
    assert await room.paint("--lora", "ink:9") == (1, "", "`--lora` must be from -4 to 4.\n")


async def test_models_that_cannot_are_told_from_those_that_can(room: Room) -> None:
    async def said(model: str) -> str:
        output = str(room.folder / "a.png")
        code, _, err = await room.command.run("paint", model, "a cat", "-o", output)
        assert code == 1
        return err

    assert await said("qwen3") == "'qwen3' is no model that paints; there are: sdxl-a.\n"
    assert await said("sdx") == "There is no model 'sdx'; there are: sdxl, sdxl-a.\n"
    assert await said("sdxl") == "'sdxl' is a family; name one of its models: sdxl-a.\n"
    assert room.peers.asked == []


async def test_ctrl_c_gives_up_at_the_service(room: Room) -> None:
    photo = room.folder / "photo.jpg"
    photo.write_bytes(b"photo")
    cut = ("cutout", str(photo), "-o", str(room.folder / "cut.webp"))
    async with room.command.on_terminal(*cut) as terminal:
        await terminal.until("cutting out")
        async with asyncio.timeout(DEADLINE_S):
            await room.peers.began.wait()
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until("Gave the cutout up")
        assert await terminal.ended() == 128 + signal.SIGINT
        async with asyncio.timeout(DEADLINE_S):
            await room.peers.given_up.wait()
    room.peers.given_up.clear()
    words = ("paint", "sdxl-a", "a cat", "-o", str(room.folder / "a.png"))
    async with room.command.on_terminal(*words) as terminal:
        await room.say(step(1, 4))
        await terminal.until("step 1 of 4")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until("Gave the picture up")
        assert await terminal.ended() == 128 + signal.SIGINT
        async with asyncio.timeout(DEADLINE_S):
            await room.peers.given_up.wait()
    assert [path.name for path in room.folder.glob("*.png")] == []


async def test_a_cutout_that_is_refused(room: Room) -> None:
    photo = room.folder / "photo.jpg"
    photo.write_bytes(b"photo")
    words = ("cutout", str(photo), "-o", str(room.folder / "cut.webp"))
    message = "`model` is missing, and no default_model is configured; name a matting model."
    room.peers.refusal = Fault(Reason.INVALID_REQUEST, message, metadata={"param": "model"})
    code, _, err = await room.command.run(*words)
    assert (code, err) == (1, message.replace("model", "--model", 1) + "\n")
    code, _, err = await room.command.run(*words, "--model", "qwen3")
    assert (code, err) == (1, "'qwen3' is no model that cuts subjects out; there are: u2net.\n")
    assert len(room.peers.asked) == 1
