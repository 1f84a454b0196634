"""Where the solver's machine code is kept, so that only the first start of all compiles.

By itself numba keeps it beside the source, else in the user's cache folder. In a container often
neither can be written, and every engine would compile for seconds at every load.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path
from tempfile import TemporaryFile

SOURCE_DIR = Path(__file__).parent / "solving"
_CACHE_DIR = "NUMBA_CACHE_DIR"


def keep_compiled(
    state_dir: Path, environ: MutableMapping[str, str] = os.environ, source_dir: Path = SOURCE_DIR
) -> None:
    """Have processes that are started from now on keep it in `state_dir` where they cannot keep it
    beside the source. What the environment says already stands.
    """
    if _CACHE_DIR not in environ and not _writable(source_dir / "__pycache__"):
        environ[_CACHE_DIR] = str((state_dir / "numba").absolute())


def _writable(folder: Path) -> bool:
    """Tried, as numba does: permissions say nothing of a read-only mount."""
    try:
        folder.mkdir(exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
