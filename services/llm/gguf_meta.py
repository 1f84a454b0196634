"""The header of a GGUF file, read without the native library and before it.

It answers what a model is and whether the file is whole: the native library aborts the process over
some broken files, this reader raises a Fault with a sentence. The weights themselves are not looked
at; what they need of memory is `footprint`'s to say. Format: the GGUF page of ggml's documentation,
versions 2 and 3.
"""

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from chassis.errors import Fault, Reason
from services.llm.engine import KvType

MAX_KEYS = 65_536
MAX_TENSORS = 1_048_576
MAX_STRING_BYTES = 64 << 20
KEPT_ITEMS = 4096
"""Arrays of numbers up to this length are kept; of longer ones, and of strings, the length."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9

# ggml type: (elements of a block, bytes of a block)
_BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34)}
_BLOCKS |= {10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)}
_BLOCKS |= {16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18)}
_BLOCKS |= {21: (256, 110), 22: (256, 82), 23: (256, 136), 29: (256, 56), 30: (1, 2)}
_BLOCKS |= {24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8)}
_BLOCKS |= {34: (256, 54), 35: (256, 66), 39: (32, 17)}


@dataclass(frozen=True, slots=True)
class ArrayLength:
    """An array whose items were not kept."""

    length: int


@dataclass(frozen=True, slots=True)
class GgufMeta:
    """Keys of a header; `weights_bytes` is the file's size behind it."""

    values: Mapping[str, Any]
    tensors: int
    weights_bytes: int

    def of_architecture(self, key: str, default: int = 0) -> int:
        """An integer of the model's own family, e.g. `block_count`; of a list, the largest."""
        value = self.values.get(f"{self.values.get('general.architecture', '')}.{key}", default)
        if isinstance(value, tuple):
            value = max(value, default=default)
        return int(value) if isinstance(value, int | float) else default

    @property
    def trained_context_tokens(self) -> int:
        """0 where the file does not say."""
        return self.of_architecture("context_length")

    @property
    def is_encoder(self) -> bool:
        """Its tokens look at what follows them: it reads texts, and writes none."""
        family = self.values.get("general.architecture", "")
        return self.values.get(f"{family}.attention.causal") is False

    @property
    def layers(self) -> int:
        """The repeating ones, and the output layer."""
        return self.of_architecture("block_count") + 1

    def kv_bytes_per_token(self, kv_type: KvType = "f16") -> int:
        """Of the KV cache: keys and values of all layers, each with its own heads."""
        layers, heads = (
            self.of_architecture("block_count"),
            self.of_architecture("attention.head_count", 1),
        )
        head = self.of_architecture("embedding_length") // max(1, heads)
        width = self.of_architecture("attention.key_length", head)
        width += self.of_architecture("attention.value_length", head)
        family = self.values.get("general.architecture", "")
        kv_heads = self.values.get(f"{family}.attention.head_count_kv", heads)
        total = sum(kv_heads) if isinstance(kv_heads, tuple) else layers * heads
        if isinstance(kv_heads, int):
            total = layers * kv_heads
        size, block = _KV_BLOCKS[kv_type]
        return -(-width * total * size // block)


_KV_BLOCKS: Mapping[KvType, tuple[int, int]] = MappingProxyType({"f16": (2, 1), "q8_0": (34, 32)})
"""Bytes of a block, and its elements."""


def read(path: Path) -> GgufMeta:
    """Read the header at `path` and check the file against it. Raises Fault MODEL_FAILED.

    Of a model in several files, `path` names the first; the weights of all are counted.
    """
    meta = _read_file(path)
    more = [_read_file(part) for part in parts(path)[1:]]
    weights = meta.weights_bytes + sum(part.weights_bytes for part in more)
    return replace(meta, weights_bytes=weights, tensors=sum(m.tensors for m in (meta, *more)))


_FIRST_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")


def parts(path: Path) -> list[Path]:
    """All files of the model whose only or first file is `path`."""
    found = _FIRST_PART.search(path.name)
    if found is None:
        return [path]
    stem, count = path.name[: found.start()], found[1]
    more = range(2, int(count) + 1)
    return [path, *(path.with_name(f"{stem}-{n:05}-of-{count}.gguf") for n in more)]


def _read_file(path: Path) -> GgufMeta:
    try:
        with path.open("rb") as file:
            return _Reader(file).header()
    except FileNotFoundError:
        raise _broken(path, "is not there; pull the model or correct its path") from None
    except _BrokenError as error:
        raise _broken(path, f"is broken: {error}; fetch it again") from None
    except OSError as error:
        raise _broken(path, f"cannot be read: {error.strerror or error}") from None


def _broken(path: Path, what: str) -> Fault:
    return Fault(Reason.MODEL_FAILED, f"The model file {path.name} {what}.")


class _BrokenError(ValueError):
    pass


class _Reader:
    """A cursor over the file; each step checks that it stays inside. The file is read, not mapped:
    one that is cut short meanwhile would end a process that has it mapped.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at, self._size = file, 0, os.fstat(file.fileno()).st_size

    def header(self) -> GgufMeta:
        if not self._size:
            raise _BrokenError("it is empty")
        if self._take(4) != b"GGUF":
            raise _BrokenError("it is not a GGUF file")
        version = self._number("I")
        if version not in {2, 3}:
            raise _BrokenError(f"its GGUF version is {version}, not 2 or 3")
        tensors, keys = self._count(MAX_TENSORS, "tensors"), self._count(MAX_KEYS, "keys")
        values = {}
        for _ in range(keys):
            key = self._string()
            values[key] = self._value(self._number("I"))
        behind = max((self._tensor_end() for _ in range(tensors)), default=0)
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
            raise _BrokenError("its alignment makes no sense")
        start = -(-self._at // alignment) * alignment
        if start + behind > self._size:
            missing = start + behind - self._size
            raise _BrokenError(f"it is cut off, {missing} bytes of weights are missing")
        return GgufMeta(values, tensors, max(0, self._size - start))

    def _take(self, size: int) -> bytes:
        if size > self._size - self._at:
            raise _BrokenError("it is cut off within its header")
        self._at += size
        data = self._file.read(size)
        if len(data) < size:
            raise _BrokenError("it was cut off while it was read")
        return data

    def _number(self, kind: str) -> int:
        return int(struct.unpack(f"<{kind}", self._take(struct.calcsize(kind)))[0])

    def _count(self, limit: int, what: str) -> int:
        count = self._number("Q")
        if count > limit:
            raise _BrokenError(f"it claims {count} {what}")
        return count

    def _string(self) -> str:
        return self._take(self._count(MAX_STRING_BYTES, "bytes in a string")).decode(
            "utf-8", "replace"
        )

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array()
        if kind not in _SCALARS:
            raise _BrokenError(f"it holds a value of unknown type {kind}")
        return struct.unpack(f"<{_SCALARS[kind]}", self._take(struct.calcsize(_SCALARS[kind])))[0]

    def _array(self) -> ArrayLength | tuple[Any, ...]:
        kind, length = self._number("I"), self._count(self._size, "items in a list")
        if kind in _SCALARS:
            raw = self._take(length * struct.calcsize(_SCALARS[kind]))
            if length <= KEPT_ITEMS:
                return struct.unpack(f"<{length}{_SCALARS[kind]}", raw)
        elif kind == _STRING:
            for _ in range(length):
                self._take(self._count(MAX_STRING_BYTES, "bytes in a string"))
        else:
            raise _BrokenError(f"it holds a list of unknown type {kind}")
        return ArrayLength(length)

    def _tensor_end(self) -> int:
        self._string()
        dimensions = self._number("I")
        if dimensions > 4:
            raise _BrokenError(f"it holds a tensor of {dimensions} dimensions")
        elements = 1
        for _ in range(dimensions):
            elements *= self._number("Q")
        kind, offset = self._number("I"), self._number("Q")
        # Of a type younger than this table only the beginning can be checked.
        block, size = _BLOCKS.get(kind, (1, 0))
        return offset + -(-elements // block) * size
