"""The file of keys on the disk: changed by one command at a time, whole or not at all.

A new file is for its owner alone. One that is there keeps its owner and mode, so that an edge which
runs as somebody else goes on reading it.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chassis.config import ConfigError
from cli.console import Refused
from edge.keys.file import read_keys

_MODE = 0o600


def change(path: Path, edit: Callable[[str], str]) -> None:
    """Write what `edit` makes of the file's text. Raises Refused, and ConfigError for a bad file.

    Nothing is written that the edge would not take.
    """
    path = path.resolve()  # a link stays one
    with _locked(path.parent):
        read_keys(path)
        text = _text(path)
        _replace(path, edit(text))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Refused(f"The folder {folder} cannot be used: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(made, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            _own_as(path, out.fileno())
            os.fsync(out.fileno())
        _check(draft, path)
        draft.replace(path)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        draft.unlink(missing_ok=True)


def _own_as(path: Path, draft: int) -> None:
    try:
        seen = path.stat()
    except FileNotFoundError:
        return
    os.fchown(draft, seen.st_uid, seen.st_gid)
    os.fchmod(draft, seen.st_mode & 0o777)


def _check(draft: Path, path: Path) -> None:
    try:
        read_keys(draft)
    except ConfigError as error:
        said = str(error).replace(str(draft), str(path))
        raise Refused(f"The edge would not take this, so nothing was changed: {said}") from None
