"""A network whose code comes with its weights: a repository of a hub, pinned to one commit.

The code runs with all rights of the engine, so the configuration has to trust it by name and
commit. A snapshot that is there already is used as it is, without asking the hub.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from chassis.errors import Fault, Reason
from services.matte.engine import EngineSpec, HubCode

_FILES = ("*.py", "*.json", "*.safetensors", "pytorch_model.bin")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_CLASSES = ("AutoModelForImageSegmentation", "AutoModel")


def hub_module(spec: EngineSpec) -> Any:
    """The module, on the CPU, with its weights. Raises Fault MODEL_FAILED."""
    assert spec.hub is not None  # noqa: S101 - the configuration sees to it
    folder = _snapshot(spec.hub, spec.path)
    try:
        module = _made(folder, spec.hub)
        module.load_state_dict(_weights(folder))
    except Fault:
        raise
    except ImportError as error:
        raise _failed(spec.hub, f"its code needs {error.name}, which is not installed") from None
    except Exception as error:  # foreign code
        said = str(error).strip().partition("\n")[0][:300]
        raise _failed(spec.hub, f"{type(error).__name__}: {said}") from None
    return module


def _snapshot(hub: HubCode, cache: Path) -> Path:
    try:
        import huggingface_hub  # noqa: PLC0415 - of this kind of network alone
    except ImportError:
        raise _failed(hub, "huggingface_hub is not installed") from None
    for only_local in (True, False):
        try:
            found = huggingface_hub.snapshot_download(
                hub.repo,
                revision=hub.revision,
                cache_dir=cache,
                allow_patterns=list(_FILES),
                local_files_only=only_local,
            )
        except Exception as error:  # of the hub, of the network, of the disk
            if not only_local:
                said = str(error).strip().partition("\n")[0][:300]
                raise _failed(hub, f"it cannot be fetched: {said}") from None
        else:
            return Path(found)
    raise _failed(hub, "it cannot be fetched")


def _made(folder: Path, hub: HubCode) -> Any:
    """An instance of the class that the snapshot's own configuration names."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    named: Mapping[str, str] = config.get("auto_map", {})
    entry = next((named[kind] for kind in _CLASSES if kind in named), "")
    file, _, name = entry.rpartition(".")
    if not file.isidentifier() or not name.isidentifier():
        raise _failed(hub, "its config.json names no class of a module in `auto_map`")
    return getattr(_imported(folder, file), name)()


def _imported(folder: Path, file: str) -> ModuleType:
    """Module `file` of a package that is the snapshot, so that its relative imports work."""
    package = f"_hub_{folder.name}"
    spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.{file}")


def _weights(folder: Path) -> Any:
    path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(f"none of {', '.join(_WEIGHTS)} is in it")
    if path.suffix == ".bin":
        return torch.load(path, map_location="cpu", weights_only=True)
    return importlib.import_module("safetensors.torch").load_file(path)


def _failed(hub: HubCode, why: str) -> Fault:
    told = f"The network {hub.repo} at {hub.revision[:12]} cannot be used: {why}."
    return Fault(Reason.MODEL_FAILED, told)
