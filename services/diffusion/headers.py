"""The headers of weight files: which tensors they hold, and what those take when they are loaded.

Read without the native library and before it, which would load a wrong file and fail at the first
picture. Formats: safetensors, GGUF (versions 2 and 3); checkpoints in zip files are taken unseen.
The weights themselves are not looked at.
"""

import json
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chassis.errors import Fault, Reason

_MOST_HEADER_BYTES = 64 << 20
_MOST_TENSORS = 100_000
_MOST_KEYS = 65_536
_ZIP = b"PK\x03\x04"
_WIDTHS = {"F8_E4M3": 2.0, "F8_E5M2": 2.0, "F64": 0.5, "I64": 0.5}
"""The native library keeps 8-bit floats as 16 bits, and halves what is twice as wide as it uses."""
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 8

Reader = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds."""

    tensors: frozenset[str]
    """Empty: not known."""
    loaded_bytes: int


def read(path: Path) -> Header:
    """Blocks. Raises Fault MODEL_FAILED with a sentence that names the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if start[:4] == b"GGUF":
                return _gguf(path, size)
            if start[:4] == _ZIP:
                return Header(frozenset(), size)
            return _safetensors(file.read, start, size)
    except FileNotFoundError:
        raise _unusable(
            path, "is not there; get it with `cohabit pull`, or mend the path"
        ) from None
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, struct.error, RecursionError, KeyError, TypeError) as error:
        what = str(error) if isinstance(error, _BrokenError) else "its header is broken"
        raise _unusable(path, f"cannot be used: {what}") from None


class _BrokenError(ValueError):
    """The message says what is wrong with the file."""


def _safetensors(read_bytes: Reader, start: bytes, size: int) -> Header:
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= min(size - 8, _MOST_HEADER_BYTES):
        raise _BrokenError("it is neither safetensors nor GGUF, or was cut short")
    entries = json.loads(read_bytes(length))
    entries.pop("__metadata__", None)
    if not 0 < len(entries) <= _MOST_TENSORS:
        raise _BrokenError("it holds no weights")
    loaded, end = 0.0, 0
    for entry in entries.values():
        first, last = entry["data_offsets"]
        loaded += (last - first) * _WIDTHS.get(entry["dtype"], 1.0)
        end = max(end, last)
    if end > size - 8 - length:
        raise _BrokenError("it was cut short; get it anew")
    return Header(frozenset(entries), int(loaded))


def _gguf(path: Path, size: int) -> Header:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        version, tensors, keys = struct.unpack_from("<IQQ", data, 4)
        if version not in {2, 3} or tensors > _MOST_TENSORS or keys > _MOST_KEYS:
            raise _BrokenError(f"it is GGUF of version {version}, or no GGUF at all")
        walk = _Walk(data, 24)
        for _ in range(keys):
            walk.string()
            walk.skip_value(walk.number("<I", 4))
        names = frozenset(walk.tensor() for _ in range(tensors))
    if not names:
        raise _BrokenError("it holds no weights")
    return Header(names, size - walk.at)


class _Walk:
    """Reads on through a GGUF header."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data, self.at = data, at

    def number(self, form: str, width: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self.at)
        self.at += width
        return int(value)

    def string(self) -> bytes:
        length = self.number("<Q", 8)
        if length > len(self._data) - self.at:
            raise _BrokenError("it was cut short; get it anew")
        self.at += length
        return self._data[self.at - length : self.at]

    def skip_value(self, kind: int) -> None:
        if kind == _STRING:
            self.string()
        elif kind == _ARRAY:
            item, count = self.number("<I", 4), self.number("<Q", 8)
            if item in _SCALAR_BYTES:
                self.at += count * _SCALAR_BYTES[item]
            else:
                self._skip_items(item, count)
        else:
            self.at += _SCALAR_BYTES[kind]

    def tensor(self) -> str:
        """The name of the next tensor."""
        name, dimensions = self.string(), self.number("<I", 4)
        if dimensions > _MOST_DIMENSIONS:
            raise _BrokenError("a tensor of it has too many dimensions")
        self.at += 8 * dimensions + 4 + 8
        return name.decode(errors="replace")

    def _skip_items(self, item: int, count: int) -> None:
        if item != _STRING:
            raise _BrokenError("a list in its header is broken")
        for _ in range(count):
            self.string()


def _unusable(path: Path, what: str) -> Fault:
    return Fault(Reason.MODEL_FAILED, f"The file {path} {what}.")
