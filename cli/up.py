"""`cohabit up`: check everything, start every service, say when the house answers.

The configuration is checked from end to end before the first process is started; supervision
itself is in `launcher`.
"""

import asyncio
import errno
import json
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from chassis.config import ConfigError, fail
from chassis.process import child_env, die_with_parent
from cli import house, notify
from cli.console import note
from cli.health import Health, until_serving
from cli.launcher import OWN, Launcher, Spec
from cli.lines import Screen
from cli.model_files import ABSENT, ModelFile
from cli.pull import pull_file
from cli.runlock import run_lock

READY_S = 60.0
"""How long the house may take until everything answers."""
EDGE_STOP_S = 5.0
"""The edge, which stops first, may finish answers as long as it drains; the others are quick."""
QUESTION = "What is the capital of France? Answer in one sentence."
"""One that a small model gets right."""
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
        try:
            check_free(whole.edge_url)
        except ConfigError as error:
            fail(error)
        raise typer.Exit(run(whole))


def check_free(url: str) -> None:
    """Raise ConfigError when another program listens where the edge is to.

    Asked before anything starts: if that program is another house, its edge would answer for ours,
    and this one would be called up.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    f"edge.listen: another program listens on {parts.netloc}; stop it, or set "
                    "another port (a .local.yaml beside the configuration is a place for it)"
                ) from None


def pull_models(whole: house.Whole) -> None:
    """Get every model that has a source and no file. Raises Refused on the first that fails."""
    for file in whole.missing():
        if file.source is None:
            continue
        note(f"Model {file.label}: pulling {file.source}")
        done = pull_file(file, whole.house.models_dir, whole.path.parent)
        note(f"Model {file.label}: {done.path}, sha256 {done.sha256}")


def specs(config_path: Path, services: Sequence[str]) -> list[Spec]:
    """The programs of the house, in starting order: `services` of gRPC, then the edge."""
    modules = {name: f"services.{name}" for name in services} | {"edge": "edge"}
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
    programs = specs(whole.path, whole.services)
    names = [OWN, *(spec.name for spec in programs)]
    screen = Screen(sys.stderr.fileno(), names, page_fd=sys.stdout.fileno())
    env = child_env() | {"PYTHONUNBUFFERED": "1"}
    if sys.stderr.isatty():
        env.setdefault(_LOG_ENV, "console")

    async def main() -> int:
        return await Launcher(programs, env, screen).run(lambda: announce(whole, screen))

    try:
        return asyncio.run(main())
    finally:
        screen.close()


async def announce(whole: house.Whole, screen: Screen, deadline_s: float = READY_S) -> None:
    """Say once that the house is up, or what of it is not after `deadline_s`."""
    seen = await until_serving(whole.addresses, whole.edge_url, deadline_s)
    if all(health.serving for health in seen):
        screen.page("\n".join(banner(seen, whole)))
        notify.ready(f"Serves at {whole.edge_url}")
        return
    for line in complaint(seen, deadline_s):
        screen.line(OWN, line)
    notify.status(f"Not everything answers after {deadline_s:.0f} s")


def banner(seen: list[Health], whole: house.Whole) -> list[str]:
    """The house is up: who listens where, what models lack, and a request that works."""
    width = max(len(health.name) for health in seen)
    table = [f"  {health.name:<{width}}  {health.address}" for health in seen]
    troubles = whole.troubles()
    lines = ["Cohabit is up.", *table]
    lines += [remedy(whole, file, trouble) for file, trouble in troubles.items()]
    if (usable := whole.usable) is not None:
        lines += ["Try:", f"  {curl(whole.edge_url, usable)}"]
    return lines


def remedy(whole: house.Whole, file: ModelFile, trouble: str) -> str:
    """What to do about a file that cannot be used; the house then takes it as it is."""
    if trouble != ABSENT:
        advice = "mend that, or correct its path"
    elif file.source:
        advice = f"get it with `{_pull_line(whole.path, file.model)}`"
    else:
        advice = "put it there, or name its `source` in the configuration"
    return f"Model {file.label}: {whole.place_of(file)} {trouble}; {advice}."


def _pull_line(config_path: Path, name: str) -> str:
    words = ["cohabit", "pull", name]
    if config_path != house.USUAL_FILE.absolute():
        words += ["--config", str(config_path)]
    return shlex.join(words)


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
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
    }
    said = shlex.quote(json.dumps(body, separators=(",", ":")))
    return f"curl {url}/v1/chat/completions -H 'content-type: application/json' -d {said}"
