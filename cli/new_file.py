"""A file that the command makes: whole or not at all, and never over another unasked."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cli.console import Refused


def check_free(path: Path, *, force: bool) -> None:
    """Raises Refused when a file cannot be made here; best asked before long work."""
    if path.is_dir():
        raise Refused(f"{path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise Refused(f"There is no folder {path.parent}; make it first.")
    if path.exists() and not force:
        raise _taken(path)


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Written beside `path`, and named so when the block ends well. Raises Refused."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("xb") as out:
            yield out
        if not force:
            path.open("xb").close()  # takes the name, which another may have taken meanwhile
        draft.replace(path)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        draft.unlink(missing_ok=True)


def _taken(path: Path) -> Refused:
    return Refused(f"{path} exists; add --force to write over it, or name another.")
