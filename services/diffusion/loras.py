"""The adapters below the one LoRA directory: which there are, and which file a request means.

A `lora_id` is a file there, with or without its ending, or a folder of files. It has no path parts,
and what it resolves to, links followed, still lies in the directory. A file is looked into before
it is given to the native library, which would warn of a broken one in its log and go on without it.
"""

import json
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chassis.errors import Fault, Reason
from services.diffusion.limits import wrong
from services.diffusion.values import AskedLora

SUFFIXES = (".safetensors", ".gguf")
"""Formats that hold weights and nothing that could be run."""
MOST_LISTED = 10_000
_MOST_HEADER_BYTES = 16 << 20
_MOST_NAME_BYTES = 255
_GGUF = b"GGUF"
_BASES = (
    ("stable-diffusion-xl", "sdxl"),
    ("sdxl", "sdxl"),
    ("stable-diffusion-v1", "sd1"),
    ("sd_v1", "sd1"),
    ("stable-diffusion-v2", "sd2"),
    ("sd_v2", "sd2"),
    ("flux", "flux"),
    ("chroma", "chroma"),
    ("qwen-image", "qwen-image"),
    ("qwen_image", "qwen-image"),
    ("z-image", "z-image"),
    ("zimage", "z-image"),
    ("ovis", "ovis-image"),
    ("wan", "wan"),
)
"""How trainers' words for a base begin, and the family they mean."""


@dataclass(frozen=True, slots=True)
class LoraFile:
    """An adapter that requests may name."""

    lora_id: str
    filename: str
    """Empty where the id alone says it."""
    path: Path
    size_bytes: int
    changed_unix_ms: int
    base: str
    """Family of models it was trained for; empty: it does not say."""


def listed(folder: Path, base: str = "") -> list[LoraFile]:
    """What lies below `folder`, by id and filename; with `base`, only what may fit that family.

    Blocks; at most MOST_LISTED. Broken files and what lies elsewhere are left out, for a request
    could not use them.
    """
    found: list[LoraFile] = []
    for lora_id, filename, path in _candidates(folder):
        file = _described(folder, lora_id, filename, path)
        if file is not None and (not base or file.base in {"", base}):
            found.append(file)
        if len(found) == MOST_LISTED:
            break
    return sorted(found, key=lambda file: (file.lora_id, file.filename))


def resolve(asked: AskedLora, folder: Path | None, family: str, param: str) -> Path:
    """The file that a request names by id. Blocks.

    Raises Fault LORA_NOT_FOUND, INVALID_REQUEST for an id with path parts, a file that is broken,
    and one that says it was trained for another family.
    """
    for name, value in (("lora_id", asked.lora_id), ("filename", asked.filename)):
        if value and not _is_name(value):
            raise wrong(f"{param}.{name}", "must be a name as ListLoras tells it, without a path")
    path = None if folder is None else _found(folder, asked, param)
    if path is None:
        raise Fault(
            Reason.LORA_NOT_FOUND,
            f"There is no LoRA '{asked.lora_id[:128]}'; ask for one of those that are listed.",
            metadata={"param": f"{param}.lora_id"},
        )
    return checked(path, family, param)


def checked(path: Path, family: str, param: str) -> Path:
    """`path`, if it holds weights that may fit. Blocks. Raises Fault as `resolve`."""
    try:
        base = base_of(header(path))
    except (OSError, ValueError) as error:
        raise wrong(param, f"names a file that holds no weights: {_short(error)}") from None
    if base and base != family:
        raise wrong(param, f"was trained for {base}, and this model is of family {family}")
    return path


def header(path: Path) -> Mapping[str, Any]:
    """The header of a safetensors file; empty for GGUF. Raises ValueError, OSError."""
    with path.open("rb") as file:
        start = file.read(8)
        if start[:4] == _GGUF:
            return {}
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= _MOST_HEADER_BYTES:
            raise ValueError("neither safetensors nor GGUF")
        raw = file.read(length)
    try:
        read = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(read, dict):
        raise ValueError("its header is no object")
    _check_extent(read, path.stat().st_size - 8 - length)
    return read


def base_of(read: Mapping[str, Any]) -> str:
    """The family that a header says it was trained for; empty: it does not say."""
    metadata = read.get("__metadata__")
    if not isinstance(metadata, dict):
        return ""
    for key in ("modelspec.architecture", "ss_base_model_version"):
        word = str(metadata.get(key, "")).lower()
        for begins, family in _BASES:
            if word.startswith(begins):
                return family
    return ""


def _check_extent(read: Mapping[str, Any], data_bytes: int) -> None:
    ends = [
        entry["data_offsets"][1]
        for name, entry in read.items()
        if name != "__metadata__" and isinstance(entry, dict) and _has_offsets(entry)
    ]
    if not ends:
        raise ValueError("it has no tensors")
    if max(ends) > data_bytes:
        raise ValueError("it is cut short")


def _has_offsets(entry: Mapping[str, Any]) -> bool:
    offsets = entry.get("data_offsets")
    return isinstance(offsets, list) and len(offsets) == 2 and isinstance(offsets[1], int)


def _is_name(value: str) -> bool:
    short = len(value.encode(errors="replace")) <= _MOST_NAME_BYTES
    return short and value not in {".", ".."} and not any(mark in value for mark in "/\\\0")


def _candidates(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """(lora_id, filename, path) of what looks like an adapter."""
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.suffix in SUFFIXES:
            yield entry.stem, "", entry
        elif entry.is_dir():
            files = _weights_in(entry)
            for file in files:
                yield entry.name, "" if len(files) == 1 else file.name, file


def _described(folder: Path, lora_id: str, filename: str, path: Path) -> LoraFile | None:
    if not _inside(folder, path):
        return None
    try:
        base, stat = base_of(header(path)), path.stat()
    except (OSError, ValueError):
        return None
    changed_unix_ms = stat.st_mtime_ns // 1_000_000
    return LoraFile(lora_id, filename, path.resolve(), stat.st_size, changed_unix_ms, base)


def is_file(path: Path) -> bool:
    """Whether it is there to be read; a name that no file can have is no error."""
    return os.path.isfile(path)  # noqa: PTH113 - pathlib's raises for names that are too long


def _inside(folder: Path, path: Path) -> bool:
    return is_file(path) and path.resolve().is_relative_to(folder.resolve())


def _weights_in(folder: Path) -> list[Path]:
    """By name; a folder that cannot be read has none."""
    try:
        return [file for file in sorted(folder.iterdir()) if file.suffix in SUFFIXES]
    except OSError:
        return []


def _found(folder: Path, asked: AskedLora, param: str) -> Path | None:
    """The one file that is meant, inside `folder`; None: there is none."""
    if not asked.lora_id:
        return None
    entry = folder / asked.lora_id
    if entry.is_dir():
        files = _weights_in(entry)
        if asked.filename:
            files = [file for file in files if file.name == asked.filename]
    else:
        files = [entry] if entry.suffix in SUFFIXES else []
        files += [folder / f"{asked.lora_id}{suffix}" for suffix in SUFFIXES]
        files = [file for file in files if asked.filename in {"", file.name}]
    inside = [file.resolve() for file in files if _inside(folder, file)]
    if len(inside) > 1:
        raise wrong(f"{param}.filename", "is needed, for that LoRA has several files")
    return inside[0] if inside else None


def _short(error: Exception) -> str:
    """Without the path of an OSError, which is the house's and not the caller's to know."""
    return (error.strerror or "unreadable") if isinstance(error, OSError) else str(error)
