"""What a file is, so that another under the same name is never taken for it.

The path, the size, the times of the last change, and a hash of the content: of all of it for a
small file, of both ends for a large one, where the header of every format for weights lies. One of
the times is the inode's, which nobody can set: who writes into a file and puts its time back is
found out, too.
"""

import hashlib
import os
from collections import OrderedDict
from pathlib import Path

_WHOLE_BYTES = 64 << 20
_END_BYTES = 4 << 20
_REMEMBERED = 256


class Fingerprints:
    """Of files; each is read again only when it has changed. For any thread."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, int, int, int, int], str] = OrderedDict()

    def of(self, path: Path) -> str:
        """Blocks while it reads. Raises OSError."""
        stat = path.stat()
        times = stat.st_mtime_ns, stat.st_ctime_ns
        stamp = (str(path), stat.st_ino, stat.st_size, *times)
        known = self._known.get(stamp)
        if known is None:
            known = f"{path}:{stat.st_size}:{times}:{_digest(path, stat)}"
            self._known[stamp] = known
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return known


def _digest(path: Path, stat: os.stat_result) -> str:
    with path.open("rb") as file:
        if stat.st_size <= _WHOLE_BYTES:
            return hashlib.file_digest(file, "sha256").hexdigest()
        hashed = hashlib.sha256(file.read(_END_BYTES))
        file.seek(-_END_BYTES, os.SEEK_END)
        hashed.update(file.read(_END_BYTES))
        return hashed.hexdigest()
