"""The diffusion engine as a process: restarts, cancels that end it, files that are wrong."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.channel import PERMIT_ID, open_channel
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc as rpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.engine_side import FAILED_PREFIX, RENEW_STATUS, Birth
from services.diffusion.engine import EngineSpec, Role, as_json
from tests.diffusion_kit import DEADLINE_S, KEY, answer_of, asking, spec_of_tiny
from tests.tiny_diffusion import Size, TinyDiffusion, make_tiny_diffusion

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyDiffusion:
    return make_tiny_diffusion(tmp_path_factory.mktemp("tiny"), vae=True)


@dataclass(slots=True)
class Process:
    child: asyncio.subprocess.Process
    stub: "rpc.DiffusionServiceAsyncStub"
    failed: str
    """The line that says why it did not load; empty: it did."""

    def call(self, request: pb.GenerateRequest, permit: str) -> Any:
        return self.stub.Generate(request, metadata=((PERMIT_ID, permit),), timeout=DEADLINE_S)


@asynccontextmanager
async def process(spec: EngineSpec, folder: Path) -> AsyncIterator[Process]:
    address = f"unix:{folder}/engine.sock"
    birth = Birth(address, KEY, "tiny-1", "info", as_json(spec))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "services.diffusion.engine_main"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": f"{ROOT}:{ROOT}/gen"},
    )
    assert child.stdin is not None
    assert child.stderr is not None
    errors = asyncio.create_task(child.stderr.read())
    child.stdin.write(json.dumps(asdict(birth)).encode() + b"\n")
    child.stdin.close()
    try:
        async with asyncio.timeout(DEADLINE_S), open_channel(address) as channel:
            watching = asyncio.create_task(_failure(models_pb2_grpc.EngineServiceStub(channel)))
            await asyncio.wait({watching, errors}, return_when=asyncio.FIRST_COMPLETED)
            failed = await watching if watching.done() else None
            watching.cancel()
            if failed is None:  # it ended before it could tell
                failed = _last_words((await errors).decode())
            yield Process(child, rpc.DiffusionServiceStub(channel), failed)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
        await errors


async def _failure(stub: "models_pb2_grpc.EngineServiceAsyncStub") -> str | None:
    """Why the load failed; empty: it did not, None: the engine did not live to say it."""
    watching = stub.WatchEngine(
        models_pb2.WatchEngineRequest(), timeout=DEADLINE_S, wait_for_ready=True
    )
    with suppress(grpc.aio.AioRpcError):
        async for event in watching:
            if event.HasField("ready"):
                return ""
            if event.HasField("failed"):
                return str(event.failed.message)
    return None


def _last_words(errors: str) -> str:
    """What its parent reads then."""
    [line] = [line for line in errors.splitlines() if line.startswith(FAILED_PREFIX)]
    return line


async def test_a_restart_changes_no_byte(made: TinyDiffusion, tmp_path: Path) -> None:
    lives = []
    for _ in range(2):
        async with process(spec_of_tiny(made), tmp_path) as running:
            assert not running.failed
            await answer_of(running.call(asking("something else", seed=5), "first"))
            lives.append((await answer_of(running.call(asking(), "second"))).data)
    assert lives[0] == lives[1]


async def test_a_cancel_that_would_outlast_a_reload_renews_the_process(
    made: TinyDiffusion, tmp_path: Path
) -> None:
    spec = spec_of_tiny(made, restart_s=0.0)
    async with process(spec, tmp_path) as running:
        stream = running.call(asking(width_px=1024, height_px=1024, steps=150), "long")
        async for response in stream:
            if response.HasField("progress") and response.progress.done_steps:
                break
        began = asyncio.get_running_loop().time()
        stream.cancel()
        async with asyncio.timeout(DEADLINE_S):
            status = await running.child.wait()
        assert status == RENEW_STATUS
        # At the latest after as long as a reload takes; never after the minutes of the picture.
        assert asyncio.get_running_loop().time() - began < 10


async def test_a_cancel_of_little_work_lets_it_finish(made: TinyDiffusion, tmp_path: Path) -> None:
    async with process(spec_of_tiny(made, restart_s=60.0), tmp_path) as running:
        before = (await answer_of(running.call(asking(), "before"))).data
        stream = running.call(asking(width_px=256, height_px=256, steps=4), "short")
        async for response in stream:
            if response.HasField("progress") and response.progress.done_steps:
                break
        stream.cancel()
        request = asking(reuse=pb.GenerateRequest.Reuse(no_result_cache=True))
        assert (await answer_of(running.call(request, "after"))).data == before
        assert running.child.returncode is None


@pytest.mark.parametrize("role", ["diffusion_model", "llm", "taesd"])
async def test_a_missing_file_is_named_at_load(
    made: TinyDiffusion, tmp_path: Path, role: Role
) -> None:
    spec = spec_of_tiny(made)
    spec = replace(spec, files={**spec.files, role: "/nowhere/weights.safetensors"})
    async with process(spec, tmp_path) as running:
        assert "/nowhere/weights.safetensors" in running.failed
        assert "see to it" in running.failed


async def test_swapped_and_broken_files_are_found_at_load(
    made: TinyDiffusion, tmp_path: Path
) -> None:
    spec = spec_of_tiny(made)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(made.diffusion_model.read_bytes()[:500_000])
    empty = tmp_path / "empty.safetensors"
    empty.touch()
    wrongs: tuple[dict[Role, str], ...] = (
        {"diffusion_model": str(made.llm)},
        {"llm": str(made.taesd)},
        {"taesd": str(made.vae)},
        {"diffusion_model": str(cut)},
        {"diffusion_model": str(empty)},
    )
    for files in wrongs:
        async with process(replace(spec, files={**spec.files, **files}), tmp_path) as running:
            assert "do not belong together" in running.failed


async def test_parts_that_do_not_fit_together_end_it_with_a_sentence(
    made: TinyDiffusion, tmp_path: Path
) -> None:
    wide = make_tiny_diffusion(tmp_path / "wide", size=Size(text_hidden=32))
    spec = spec_of_tiny(made)
    spec = replace(spec, files={**spec.files, "llm": str(wide.llm)})
    async with process(spec, tmp_path) as running:
        words = running.failed.removeprefix(f"{FAILED_PREFIX}model_failed ")
        assert words.startswith("The model's files")
        assert "/" not in words
