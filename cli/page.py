"""What a page for people is made of: borderless tables, sections with blank lines between them.

Colour stands on terminals alone, and no line ends in spaces.
"""

import re
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

_NARROWEST = 100
"""Columns of the page where there is no terminal to ask."""
_FILL = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
"""Spaces at the end of a line, and the colours that end with them."""


def table_of(title: str | None, *columns: str) -> Table:
    """A borderless table; a column named "#x" is "x" set to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        name = column.removeprefix("#")
        table.add_column(name, justify="left" if name == column else "right", header_style="dim")
    return table


def or_none(table: Table) -> RenderableType:
    """A table without rows would be a heading over nothing, which could mean anything."""
    if table.row_count or table.title is None:
        return table
    return Group(Text(str(table.title), "bold"), "none")


def problems(sentences: Iterable[str]) -> Text:
    """What went wrong, a line each."""
    return Text("\n".join(sentences), "red")


def page_console(narrowest: int = _NARROWEST) -> Console:
    """Standard output; at least `narrowest` columns where there is no terminal."""
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=max(console.width, narrowest))


def print_page(sections: Sequence[RenderableType], console: Console | None = None) -> None:
    """Print the sections, a blank line between them."""
    where = console or page_console()
    print("\n\n".join(rendered(where, section) for section in sections))


def rendered(console: Console, section: RenderableType) -> str:
    """The section as text; rich fills its lines up with spaces, which are taken off again."""
    with console.capture() as capture:
        console.print(section)
    return _FILL.sub(r"\1", capture.get()).rstrip("\n")
