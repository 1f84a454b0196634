"""How far a long copy is: a bar on a terminal, a few plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cli.console import note, size

Advance = Callable[[int], None]
"""Told the number of bytes just done."""
_QUARTERS = 4


@contextmanager
def progress(label: str, total: int | None, done: int = 0) -> Iterator[Advance]:
    """Show `label` while bytes are done; `total` None: unknown; `done`: there before."""
    if sys.stderr.isatty():
        with _bar(label, total, done) as advance:
            yield advance
    else:
        yield _lines(label, total, done)


@contextmanager
def _bar(label: str, total: int | None, done: int) -> Iterator[Advance]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda count: bar.advance(task, count)


def _lines(label: str, total: int | None, done: int) -> Advance:
    note(f"{label}: {size(total) if total else 'size unknown'}, {size(done)} here already")
    said = done * _QUARTERS // total if total else 0

    def advance(count: int) -> None:
        nonlocal done, said
        done += count
        quarter = done * _QUARTERS // total if total else 0
        if quarter > said:
            said = quarter
            note(f"{label}: {quarter * 100 // _QUARTERS} %")

    return advance
