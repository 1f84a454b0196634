"""YAML that remembers where each key was written, so that what is wrong in it is blamed by line.

Sections and their types are `config`'s.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_MOST_DEPTH = 16
_MOST_VALUES = 200_000

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a configuration file; lines and columns count from 1."""

    file: str
    line: int
    column: int


class ConfigError(Exception):
    """The configuration cannot be used; the text names file, line, key and what was expected."""


def read(path: Path, marks: dict[Loc, Mark]) -> dict[str, Any]:
    """What stands in the file at `path`; where, is put into `marks`. Raises ConfigError."""
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}:1: expected keys with values at the top level")
        return dict(_plain(loader, node, (), path, marks))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not readable as YAML"
        raise ConfigError(f"{path}{line}: expected YAML, {problem}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected UTF-8 text") from None
    except RecursionError:
        raise ConfigError(f"{path}: expected at most {_MOST_DEPTH} levels of keys") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def _plain(
    loader: yaml.SafeLoader, node: yaml.Node, loc: Loc, path: Path, marks: dict[Loc, Mark]
) -> Any:
    marks.setdefault(loc, _mark(path, node))
    line = node.start_mark.line + 1
    if len(loc) > _MOST_DEPTH:  # an alias may stand for what it stands in
        raise ConfigError(f"{path}:{line}: expected at most {_MOST_DEPTH} levels of keys")
    if len(marks) > _MOST_VALUES:  # a few aliases may stand for millions
        raise ConfigError(f"{path}:{line}: expected at most {_MOST_VALUES} keys and values")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, n, (*loc, i), path, marks) for i, n in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(loader, node, path)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(_scalar(loader, key_node, path))
        at = (*loc, key)
        if key in result:
            raise ConfigError(f"{path}:{key_node.start_mark.line + 1}: {key}: written twice")
        marks[at] = _mark(path, key_node)
        result[key] = _plain(loader, value_node, at, path, marks)
    return result


def _scalar(loader: yaml.SafeLoader, node: yaml.Node, path: Path) -> Any:
    line = node.start_mark.line + 1
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:  # e.g. a date that no calendar has
        raise ConfigError(f"{path}:{line}: {error}") from None
    except (LookupError, AttributeError):  # so PyYAML says that a value is not what its tag says
        raise ConfigError(
            f"{path}:{line}: expected a value of {node.tag}; remove the tag"
        ) from None


def _mark(path: Path, node: yaml.Node) -> Mark:
    return Mark(str(path), node.start_mark.line + 1, node.start_mark.column + 1)


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, key by key."""
    result = dict(base)
    for key, over_value in over.items():
        value, below = over_value, result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            value = merged(below, value)
        result[key] = value
    return result
