"""What must stand before the commands of a page work: a folder like a clone, often with a house.

A scene is begun once for all blocks of one page that name it, and its house is the one that a
reader would have started: `cohabit up`, with the configuration that the page speaks of. What
differs is told to the shell: ports, and hosts of the internet.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import yaml
from PIL import Image
from skimage import data

from tests.docs.reading import ROOT
from tests.docs.shell import Shell
from tests.integration.house import REAL_MODEL, free_port, started
from tests.tiny_diffusion import make_tiny_diffusion
from tests.tls_kit import certify

STANDS_IN = Path(__file__).parent / "bin"
"""Programs that take the place of those which would never end, or would test themselves."""
_SEEN = (
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "cohabit.yaml",
    "deploy",
    "docs",
    "examples",
    "proto",
    "scripts",
)

_SMALL = {
    "1024x1024": "192x192",
    "1024x768": "256x192",
    "768x1024": "96x128",
    '"steps": 25': '"steps": 2',
}
"""What a card paints in seconds takes a processor minutes."""

Scene = Callable[[Path], AbstractContextManager[Shell]]


def clone(folder: Path) -> Path:
    """A folder in which the commands of a page find what they find in a clone."""
    for name in _SEEN:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for program in Path(sys.executable).parent.iterdir():
        (programs / program.name).symlink_to(program)
    (programs / "cohabit").unlink()
    (programs / "cohabit").symlink_to(STANDS_IN / "cohabit")
    (folder / "bin").mkdir()
    (folder / "bin" / "make").symlink_to(STANDS_IN / "make")
    # What the house answers is what the command comes to.
    (folder / ".curlrc").write_text("silent\nshow-error\nfail-with-body\n")
    return folder


@contextmanager
def nothing(folder: Path) -> Iterator[Shell]:
    """A clone in which nothing runs."""
    yield Shell(clone(folder))


def _models(folder: Path) -> dict[str, Any]:
    """The models that pages name, each the smallest one of its kind."""
    models = folder / "models"
    models.mkdir()
    for real in ROOT.joinpath("models").iterdir():
        shutil.copy(real, models / real.name)  # `cohabit pull` follows no link out of the folder
    (models / "swaps").mkdir()
    for other in ("qwen3-8b.gguf", "swaps/other.gguf", "swaps/qwen3-8b-q4.gguf"):
        os.link(models / REAL_MODEL.name, models / other)
    made = make_tiny_diffusion(models, lora=True)
    assert made.lora is not None
    (models / "loras").mkdir()
    made.lora.rename(models / "loras" / "watercolour.safetensors")
    files = {"diffusion_model": made.diffusion_model, "llm": made.llm, "taesd": made.taesd}
    sdxl = {
        "family": "ovis-image",
        "files": {part: str(path) for part, path in files.items()},
        "defaults": {"steps": 2, "width_px": 128, "height_px": 128},
    }
    return {
        "llm": {"swap_dir": "swaps", "models": {"qwen3-8b": {"path": "qwen3-8b.gguf"}}},
        "diffusion": {"lora_dir": "loras", "models": {"sdxl": sdxl}},
    }


def _pictures(folder: Path) -> None:
    """The files that pages upload."""
    Image.fromarray(data.astronaut()).resize((256, 256)).save(folder / "portrait.jpg")
    for name in ("photo.jpg", "room.png", "chair.webp", "park.webp"):
        Image.fromarray(data.coffee()).resize((192, 128)).save(folder / name)
    window = np.zeros((128, 192, 4), np.uint8)
    window[..., 3] = 255
    window[32:96, 48:144, 3] = 0
    Image.fromarray(window).save(folder / "window.png")
    Image.fromarray(255 - window[..., 3]).save(folder / "matte.png")


@contextmanager
def _hosted(folder: Path) -> Iterator[int]:
    """A web server of the folder's files, in place of example.com; its port."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def house(folder: Path, **sections: dict[str, Any]) -> Iterator[Shell]:
    """What `make run` starts, with a diffusion model and a few others beside."""
    clone(folder)
    port = free_port()
    _pictures(folder)
    with _hosted(folder) as elsewhere:
        over = _models(folder) | sections
        over["edge"] = {
            "listen": f"127.0.0.1:{port}",
            "fetch_allow_hosts": ["127.0.0.1"],
            **sections.get("edge", {}),
        }
        (folder / "cohabit.local.yaml").write_text(yaml.safe_dump(over))
        with started(folder / "cohabit.yaml", port) as running:
            replaced = (
                _ports(port) | _SMALL | {"https://example.com": f"http://127.0.0.1:{elsewhere}"}
            )
            job, result = _job(running.url)
            env = {"UP": "", "JOB": job, "RESULT": result, "URL": running.url}
            yield Shell(folder, replaced, env)


def _ports(port: int) -> dict[str, str]:
    return {"127.0.0.1:8080": f"127.0.0.1:{port}", "localhost:8080": f"127.0.0.1:{port}"}


def _job(url: str) -> tuple[str, str]:
    """A job that pages can speak of, and its result."""
    body = {"prompt": "a harbour", "size": "64x64"}
    answer = httpx.post(f"{url}/v1/images/generations/jobs", json=body, trust_env=False)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"], "image-0"


@contextmanager
def simulated(folder: Path) -> Iterator[Shell]:
    """The house of examples/one-5090.yaml."""
    clone(folder)
    port, example = free_port(), folder / "examples" / "one-5090.yaml"
    # Its folders are below the clone's .cohabit; `started` looks for sockets nowhere.
    example.with_suffix(".local.yaml").write_text(
        yaml.safe_dump({"edge": {"listen": f"127.0.0.1:{port}"}})
    )
    with started(example, port) as running:
        # A lane is held for as long as the page says; here, for as long as it takes to see it.
        replaced = _ports(port) | {'"holdS": 60': '"holdS": 1'}
        env = {"UP": "--config examples/one-5090.yaml", "URL": running.url}
        yield Shell(folder, replaced, env)


@contextmanager
def tcp(folder: Path) -> Iterator[Shell]:
    """The house of examples/tcp.yaml, with the certificates that the page makes first."""
    clone(folder)
    certify(folder / ".cohabit" / "certificates")
    (folder / "models").mkdir()
    shutil.copy(REAL_MODEL, folder / "models" / REAL_MODEL.name)
    port, example = free_port(), folder / "examples" / "tcp.yaml"
    listen = {name: f"127.0.0.1:{free_port()}" for name in ("broker", "scheduler", "llm")}
    example.with_suffix(".local.yaml").write_text(
        yaml.safe_dump({"listen": listen, "edge": {"listen": f"127.0.0.1:{port}"}})
    )
    with started(example, port) as running:
        replaced = _ports(port) | {"127.0.0.1:9102": listen["scheduler"]}
        env = {"UP": "--config examples/tcp.yaml", "URL": running.url}
        yield Shell(folder, replaced, env)


@contextmanager
def machine(folder: Path) -> Iterator[Shell]:
    """A machine of one's own, whose root is a folder: its commands reach no other."""
    clone(folder)
    root = folder / "root"
    (root / "etc").mkdir(parents=True)
    for stand_in in ("systemctl", "journalctl", "systemd-sysusers"):
        (folder / "bin" / stand_in).symlink_to(STANDS_IN / stand_in)
    replaced = {
        "/opt/cohabit/bin/pip": str(STANDS_IN / "pip"),
        "/opt/cohabit": f"{root}/opt/cohabit",
        "/etc/": f"{root}/etc/",
    }
    yield Shell(folder, replaced, {"MACHINE": str(root)})


SCENES: dict[str, Scene] = {
    "nothing": nothing,
    "house": house,
    "simulated": simulated,
    "tcp": tcp,
    "machine": machine,
}
