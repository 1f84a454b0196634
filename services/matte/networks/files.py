"""Files of networks, looked at without loading them: is it there, whole, and what it should be.

A description costs a few reads, so that a model service never holds a network; what only the
library can tell is told by the load.
"""

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from chassis.errors import Fault, Reason
from services.matte.engine import FileKind

_GRAPH = 7
_MOST_FIELDS = 4096
"""Of an ONNX file's top level; a network has a handful."""

TorchKind = Literal["exported", "script"]


@dataclass(frozen=True, slots=True)
class Weights:
    """What there is."""

    size_bytes: int
    modified_ns: int


def look(path: Path, kind: FileKind) -> Weights:
    """Raises Fault MODEL_FAILED with one sentence: what is wrong with the file, and what to do."""
    try:
        found = path.stat()
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})", "see `path`") from None
    if not path.is_file():
        raise _unusable(path, "is no file", "name the file of a network in `path`")
    if kind == "onnx":
        _check_onnx(path, found.st_size)
    else:
        torch_kind(path)
    return Weights(found.st_size + _beside(path), found.st_mtime_ns)


def torch_kind(path: Path) -> TorchKind:
    """How torch wrote the module. Raises Fault MODEL_FAILED."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        told = "is no whole file of torch.export or TorchScript"
        raise _unusable(path, told, "export the module again, or set `kind: onnx`") from None
    if any(name.endswith(("archive_format", "serialized_exported_program.json")) for name in names):
        return "exported"
    if any(name.endswith("constants.pkl") for name in names):
        return "script"
    told = "holds weights without a module"
    raise _unusable(path, told, "save it with torch.export.save or torch.jit.save")


def _beside(path: Path) -> int:
    """ONNX keeps weights over two gigabytes in files beside it."""
    others = (path.with_name(f"{path.name}{end}") for end in ("_data", ".data"))
    return sum(other.stat().st_size for other in others if other.is_file())


def _check_onnx(path: Path, size_bytes: int) -> None:
    """The top level of the protobuf: its fields fill the file, and a graph is among them."""
    broken = _unusable(path, "is no whole ONNX file", "fetch it again, or set the `kind` it has")
    try:
        with path.open("rb") as file:
            fields = _fields(file, size_bytes)
    except (EOFError, OSError):
        raise broken from None
    if _GRAPH not in fields:
        raise broken


def _fields(file: BinaryIO, size_bytes: int) -> set[int]:
    """Numbers of the fields. Raises EOFError where they do not fill the file exactly."""
    fields: set[int] = set()
    for _ in range(_MOST_FIELDS):
        if file.tell() == size_bytes:
            return fields
        key = _varint(file)
        fields.add(key >> 3)
        match key & 7:
            case 0:
                _varint(file)
            case 1:
                file.seek(8, os.SEEK_CUR)
            case 2:
                file.seek(_varint(file), os.SEEK_CUR)
            case 5:
                file.seek(4, os.SEEK_CUR)
            case _:
                raise EOFError
    raise EOFError


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise EOFError


def _unusable(path: Path, told: str, hint: str) -> Fault:
    return Fault(Reason.MODEL_FAILED, f"The network {path.name} {told}; {hint}.")
