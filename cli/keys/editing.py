"""Changes of the text of a file of keys, which leave its comments and its order alone. Pure.

A change touches the lines that it is about. That it does just what it should is then checked on
what both texts mean; a file that is written in a way that this cannot follow is left to its author.
"""

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from cli.console import Refused

Entry = dict[str, Any]
"""What stands below a name, as YAML has it."""
_File = dict[str, Entry]


def added(text: str, name: str, entry: Entry) -> str:
    """With a key more, at the end. Raises Refused when there is one of that name."""
    if name in _read(text):
        raise Refused(f"There is a key {name} already; remove it first, or take another name.")
    if not _read(text):  # `{}` and `---` would not bear more lines; comments do
        text = "".join(line for line in text.splitlines(keepends=True) if _is_comment(line))
    new = text + ("" if not text or text.endswith("\n") else "\n") + _in_lines(name, entry)
    return _checked(text, new, lambda keys: keys | {name: entry})


def removed(text: str, name: str) -> str:
    """Without a key. Raises Refused when there is none of that name."""
    key, value = _nodes(text, name)
    lines = text.splitlines(keepends=True)
    del lines[key.start_mark.line : _last_line(value) + 1]

    def without(keys: _File) -> _File:
        return {other: entry for other, entry in keys.items() if other != name}

    return _checked(text, "".join(lines), without)


def changed(text: str, name: str, fields: Mapping[str, str | bool | None]) -> str:
    """With other values in a key's fields; None takes a field out. Raises Refused."""
    new = text
    for field, value in fields.items():
        new = _with_field(new, name, field, value)

    def with_fields(keys: _File) -> _File:
        entry = {k: v for k, v in keys[name].items() if fields.get(k, "") is not None}
        return keys | {name: entry | {k: v for k, v in fields.items() if v is not None}}

    return _checked(text, new, with_fields)


def _with_field(text: str, name: str, field: str, value: str | bool | None) -> str:
    _, entry = _nodes(text, name)
    if not isinstance(entry, yaml.MappingNode) or entry.flow_style:
        raise Refused(f"The key {name} is not written in lines; edit its file by hand.")
    lines = text.splitlines(keepends=True)
    known = {key.value: (key, node) for key, node in entry.value}
    if field in known:
        key, node = known[field]
        line = lines[key.start_mark.line]
        if value is None:
            del lines[key.start_mark.line]
        else:
            start, end = node.start_mark.column, node.end_mark.column
            lines[key.start_mark.line] = line[:start] + _scalar(value) + line[end:]
    elif value is not None:
        first = entry.value[0][0].start_mark
        lines.insert(first.line, f"{' ' * first.column}{field}: {_scalar(value)}\n")
    return "".join(lines)


def _in_lines(name: str, entry: Entry) -> str:
    """A new entry, a line a field."""
    fields = "".join(f"  {field}: {_flow(value)}\n" for field, value in entry.items())
    return f"{_flow(name)}:\n{fields}"


def _flow(value: Any) -> str:
    """A value on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, width=1_000_000)
    return written.removesuffix("\n").removesuffix("\n...")


def _scalar(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _is_comment(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _nodes(text: str, name: str) -> tuple[yaml.Node, yaml.Node]:
    """Where a key's name and its entry stand."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == name:
            return key, value
    raise Refused(f"There is no key {name}; `cohabit keys list` shows those that there are.")


def _last_line(node: yaml.Node) -> int:
    # The end mark of lines is where the next thing begins, behind the comments between.
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(node, yaml.MappingNode) else last)
    return node.end_mark.line


def _read(text: str) -> _File:
    return yaml.safe_load(text) or {}


def _checked(old: str, new: str, change: Callable[[_File], _File]) -> str:
    try:
        if _read(new) == change(_read(old)):
            return new
    except yaml.YAMLError:
        pass
    raise Refused("The file of keys is written in a way that this cannot change; edit it by hand.")
