"""`cohabit up`: check everything, start every service, say when the house answers.

The configuration is checked from end to end before the first process is started; supervision
itself is in `launcher`.
"""

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from chassis.config import ConfigError, fail
from chassis.process import child_env, die_with_parent
from cli import house
from cli.console import note
from cli.health import GRPC_SERVICES, Health, until_serving
from cli.launcher import OWN, Launcher, Spec
from cli.lines import Screen
from cli.pull import pull
from cli.runlock import run_lock

READY_S = 60.0
"""How long the house may take until everything answers."""
EDGE_STOP_S = 5.0
"""The edge, which stops first, may finish answers as long as it drains; the others are quick."""
_LOG_ENV = "COHABIT_LOG"


def command(
    config_path: Annotated[
        Path | None, typer.Option("--config", help="cohabit.yaml to use.")
    ] = None,
    pull_missing: Annotated[
        bool, typer.Option("--pull", help="First get the models whose files are missing.")
    ] = False,
) -> None:
    """Start every service on this host and keep them running until Ctrl-C."""
    die_with_parent()
    try:
        whole = house.load(config_path)
    except ConfigError as error:
        fail(error)
    if pull_missing:
        pull_models(whole)
    with run_lock(whole.house.run_dir):
        raise typer.Exit(run(whole))


def pull_models(whole: house.Whole) -> None:
    """Get every model that has a source and no file. Raises Refused on the first that fails."""
    for name, model in whole.missing().items():
        if model.source is None:
            continue
        note(f"Model {name}: pulling {model.source}")
        base = whole.path.parent
        done = pull(model.source, whole.house.models_dir, str(model.path), base=base)
        note(f"Model {name}: {done.path}, sha256 {done.sha256}")


def specs(config_path: Path) -> list[Spec]:
    """The programs of the house, in starting order."""
    modules = {name: f"services.{name}" for name in GRPC_SERVICES} | {"edge": "edge"}
    # -P: a foreign `services` folder in the working directory must not be imported.
    return [
        Spec(
            name,
            (sys.executable, "-P", "-m", module, "--config", str(config_path)),
            stop_s=EDGE_STOP_S if name == "edge" else 0.0,
        )
        for name, module in modules.items()
    ]


def run(whole: house.Whole) -> int:
    """Supervise until told to stop; answers the exit status."""
    programs = specs(whole.path)
    names = [OWN, *(spec.name for spec in programs)]
    screen = Screen(sys.stderr.fileno(), names, page_fd=sys.stdout.fileno())
    env = child_env() | {"PYTHONUNBUFFERED": "1"}
    if sys.stderr.isatty():
        env.setdefault(_LOG_ENV, "console")

    async def main() -> int:
        return await Launcher(programs, env, screen).run(lambda: announce(whole, screen))

    try:
        for name, model in whole.missing().items():
            screen.line(OWN, missing_note(name, whole.file_of(model), model.source))
        return asyncio.run(main())
    finally:
        screen.close()


def missing_note(name: str, path: Path, source: str | None) -> str:
    """What to do about a model without a file."""
    remedy = "`cohabit up --pull` gets it" if source else "put it there, or name a `source`"
    return f"model {name} has no file at {path}; {remedy}"


async def announce(whole: house.Whole, screen: Screen, deadline_s: float = READY_S) -> None:
    """Say once that the house is up, or what of it is not after `deadline_s`."""
    seen = await until_serving(whole.addresses, whole.edge_url, deadline_s)
    if all(health.serving for health in seen):
        screen.page("\n".join(banner(seen, whole.edge_url, next(iter(whole.models), None))))
        return
    for line in complaint(seen, deadline_s):
        screen.line(OWN, line)


def banner(seen: list[Health], url: str, model: str | None) -> list[str]:
    """The house is up: who listens where, and a request that works."""
    width = max(len(health.name) for health in seen)
    table = [f"  {health.name:<{width}}  {health.address}" for health in seen]
    lines = ["Cohabit is up.", *table]
    if model is not None:
        lines += ["Try:", f"  {curl(url, model)}"]
    return lines


def complaint(seen: list[Health], deadline_s: float) -> list[str]:
    """The house is not up in time, and why."""
    down = [f"  {health.name} {health.detail}" for health in seen if not health.serving]
    return [
        f"Not everything answers after {deadline_s:.0f} s:",
        *down,
        "The lines above say why; the services are kept running. `cohabit status` asks again.",
    ]


def curl(url: str, model: str) -> str:
    """A command that asks `model` something; to be pasted into a shell."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
    said = shlex.quote(json.dumps(body, separators=(",", ":")))
    return f"curl {url}/v1/chat/completions -H 'content-type: application/json' -d {said}"
