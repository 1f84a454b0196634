"""The two that are measured, as processes: our edge, and LiteLLM's proxy from a venv of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import yaml

from bench.edge_cost.asks import MODELS
from bench.edge_cost.null_model import NullModel
from bench.house import free_port
from chassis.process import child_env

_UP_S = 300.0
_FAIR = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_DISABLE_ACCESS_LOG_PATHS": "/v1/chat/completions",
    # Without it the proxy begins by asking the internet for prices.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "*",
}


@dataclass(frozen=True, slots=True)
class Proxy:
    """One that runs."""

    port: int
    pid: int

    def cpu_ms(self) -> float:
        """User and system time of all its processes until now."""
        first = psutil.Process(self.pid)
        spent = [it.cpu_times() for it in (first, *first.children(recursive=True))]
        return 1000 * sum(it.user + it.system for it in spent)


@asynccontextmanager
async def edge(folder: Path, model: NullModel, workers: int) -> AsyncIterator[Proxy]:
    """Ours, without its access log, as the rival has none. Raises RuntimeError."""
    port, config = free_port(), folder / "cohabit.yaml"
    whole = {
        "run_dir": "run",
        "addresses": dict.fromkeys(("scheduler", "broker", "llm"), model.grpc),
        "llm": {},
        "edge": {"listen": f"127.0.0.1:{port}", "workers": workers, "access_log": False},
    }
    config.write_text(yaml.safe_dump(whole))
    argv = (sys.executable, "-P", "-m", "edge", "--config", str(config))
    async with _running(argv, child_env(), port, "/readyz", folder) as proxy:
        yield proxy


@asynccontextmanager
async def litellm(
    program: Path, folder: Path, model: NullModel, workers: int
) -> AsyncIterator[Proxy]:
    """The rival with what makes it fast: no database, no callbacks, no log, no retries."""
    port, config = free_port(), folder / "litellm.yaml"
    behind = {"api_base": model.url, "api_key": "none"}
    whole = {
        "model_list": [
            {"model_name": name, "litellm_params": {"model": f"openai/{name}", **behind}}
            for name in MODELS
        ],
        "litellm_settings": {
            "callbacks": [],
            "num_retries": 0,
            "telemetry": False,
            "cache": False,
        },
        "router_settings": {"disable_cooldowns": True, "num_retries": 0},
        # Ours is asked without keys, too.
        "general_settings": {
            "disable_spend_logs": True,
            "dangerously_permit_weak_or_unset_master_key": True,
        },
    }
    config.write_text(yaml.safe_dump(whole))
    argv = (
        str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port),
        "--num_workers", str(workers),
        # uvicorn's own parent kills workers that take more than 5 s to start on a busy machine.
        *(("--run_gunicorn",) if workers > 1 else ()),
    )  # fmt: skip
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    async with _running(argv, env | _FAIR, port, "/health/liveliness", folder) as proxy:
        yield proxy


@asynccontextmanager
async def _running(
    argv: Sequence[str], env: Mapping[str, str], port: int, probe: str, folder: Path
) -> AsyncIterator[Proxy]:
    log = folder / f"{port}.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=folder
        )
    try:
        if not await _answers(f"http://127.0.0.1:{port}{probe}", process):
            raise RuntimeError(f"{argv[0]} did not come up:\n{_end_of(log)}")
        yield Proxy(port, process.pid)
    finally:
        if process.returncode is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
        await process.wait()


async def _answers(url: str, process: asyncio.subprocess.Process) -> bool:
    try:
        async with asyncio.timeout(_UP_S), httpx.AsyncClient(trust_env=False) as client:
            while process.returncode is None:
                try:
                    if (await client.get(url)).status_code == 200:
                        return True
                except httpx.HTTPError:
                    pass  # not there yet
                await asyncio.sleep(0.1)
    except TimeoutError:
        pass
    return False


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:]
