"""The files of configured models, whatever service they are of: which, where, and what is amiss.

Section types belong to their services and are imported when they are needed, so that `cohabit
pull` and `cohabit --help` pay for none that they do not ask about.
"""

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from chassis import config

ABSENT = "is not there"

_SECTIONS = {"llm": "LlmConfig", "diffusion": "DiffusionConfig", "matte": "MatteConfig"}
"""Sections whose models have files, and their types."""


class _File(Protocol):
    @property
    def path(self) -> Path:
        """Relative to models_dir, or absolute."""

    @property
    def source(self) -> str | None:
        """What `cohabit pull` gets it from."""


class _Model(Protocol):
    @property
    def files(self) -> Mapping[Any, _File]:
        """By what they are to the model; one that stands alone by an empty word."""


class _Section(Protocol):
    @property
    def models(self) -> Mapping[str, _Model]:
        """By the name that clients ask for."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a configured model."""

    model: str
    part: str
    """What it is to the model; empty: the model has no other."""
    path: Path
    """Relative to models_dir, or absolute."""
    source: str | None

    @property
    def label(self) -> str:
        """How people are told of it."""
        return f"{self.model} ({self.part})" if self.part else self.model


def section_type(name: str) -> type[config.Section]:
    """The type of a section whose models have files."""
    kind: type[config.Section] = getattr(import_module(f"services.{name}.config"), _SECTIONS[name])
    return kind


def sections_with_files(document: config.Document) -> tuple[str, ...]:
    """Those that the configuration has."""
    return tuple(name for name in _SECTIONS if name in document.data)


def files_of(section: config.Section) -> tuple[ModelFile, ...]:
    """Every file of every model of a section, as they are written."""
    return tuple(
        ModelFile(name, str(part), file.path, file.source)
        for name, model in cast("_Section", section).models.items()
        for part, file in model.files.items()
    )


def configured_models(document: config.Document) -> list[str]:
    """The names of configured models that have files."""
    return [name for section in sections_with_files(document) for name in _names(document, section)]


def files_named(document: config.Document, name: str) -> tuple[ModelFile, ...]:
    """The files of the configured model `name`; none if there is no such. Raises ConfigError."""
    for section in sections_with_files(document):
        if name in _names(document, section):
            files = files_of(document.section(section, section_type(section)))
            return tuple(file for file in files if file.model == name)
    return ()


def _names(document: config.Document, section: str) -> list[str]:
    body = document.data.get(section)
    models = body.get("models") if isinstance(body, Mapping) else None
    return [str(name) for name in models] if isinstance(models, Mapping) else []


def trouble_with(path: Path) -> str | None:
    """Why the file cannot be read, to follow its path in a sentence; None if it can."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "is no file"
        with path.open("rb"):
            return None
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return f"cannot be read: {error.strerror}"
