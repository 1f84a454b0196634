"""One launcher for one run directory: sockets of two would replace each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.console import Refused


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Hold the run directory. Raises Refused when another launcher has it.

    The kernel gives the lock back when this process ends in whatever way; the file stays.
    """
    try:
        run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (run_dir / "launcher.lock").open("a+")
    except OSError as error:
        raise Refused(f"The run directory {run_dir} cannot be used: {error.strerror}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise Refused(
                f"Cohabit is already up in {run_dir} (process {holder}); "
                "stop that one first, or set another run_dir."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
