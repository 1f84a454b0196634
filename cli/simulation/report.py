"""The figures of one replay, or of two side by side, for people and for scripts."""

from collections.abc import Sequence
from dataclasses import asdict

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.console import printable
from cli.page import table_of
from cli.simulation.figures import Figures, Waits
from cli.simulation.record import End

_MOST_KEYS = 20
"""Keys on the page; all of them are in the JSON."""


def as_json(replays: Sequence[Figures]) -> str:
    """Everything, for scripts: a list, the scheduler first."""
    raw = msgspec.json.encode([asdict(each) for each in replays])
    return msgspec.json.format(raw, indent=2).decode()


def sections(replays: Sequence[Figures]) -> list[RenderableType]:
    """The page: what came of it, then the waits of each replay."""
    found: list[RenderableType] = [_summary(replays)]
    for each in replays:
        title = f"Waits, {each.policy}" if len(replays) > 1 else "Waits"
        found.append(_waits(f"{title}, by tier", "tier", each.tiers))
        named = [waits for waits in each.keys if waits.name]
        if named:
            found.append(_waits(f"{title}, by key", "key", named[:_MOST_KEYS]))
        if len(named) > _MOST_KEYS:
            found.append(Text(f"and {len(named) - _MOST_KEYS} keys more; --json has them all"))
    return found


def _summary(replays: Sequence[Figures]) -> Table:
    first = replays[0]
    span = f"{first.requests:,} requests over {first.hours:.1f} h"
    table = table_of(span, "", *(f"#{each.policy}" for each in replays))
    for end in End:
        table.add_row(end.value, *(f"{each.ends[end.value]:,}" for each in replays))
        for reason in _reasons(end, replays):
            cells = (f"{_of(end, each).get(reason, 0):,}" for each in replays)
            table.add_row(f"  {printable(reason)}", *cells)
    table.add_row("loads", *(f"{each.loads:,}" for each in replays))
    table.add_row("  cold", *(f"{each.cold_loads:,}" for each in replays))
    table.add_row("  given up", *(f"{each.cancelled_loads:,}" for each in replays))
    table.add_row("evictions", *(f"{each.evictions:,}" for each in replays))
    table.add_row("out of memory", *(_alarming(each.out_of_memory) for each in replays))
    table.add_row("memory used", *(f"{each.memory_used:.1%}" for each in replays))
    table.add_row("permits used", *(f"{each.permits_used:.1%}" for each in replays))
    table.add_row("replayed in", *(f"{each.replay_s:.1f} s" for each in replays))
    table.add_row("requests a second", *(f"{each.requests_per_s:,.0f}" for each in replays))
    return table


def _alarming(count: int) -> Text:
    return Text(f"{count:,}", "bold red" if count else "green")


def _of(end: End, figures: Figures) -> dict[str, int]:
    match end:
        case End.REFUSED:
            return dict(figures.refused)
        case End.CUT_OFF:
            return dict(figures.cut_off)
        case _:
            return {}


def _reasons(end: End, replays: Sequence[Figures]) -> list[str]:
    return list(dict.fromkeys(reason for each in replays for reason in _of(end, each)))


def _waits(title: str, what: str, rows: Sequence[Waits]) -> Table:
    table = table_of(title, what, "#requests", "#done", "#p50", "#p99", "#worst", "#not done")
    for row in rows:
        done = row.ends[End.DONE.value]
        table.add_row(
            Text(printable(row.name)),
            f"{row.requests:,}",
            f"{done:,}",
            *map(_seconds, (row.p50_s, row.p99_s, row.worst_s)),
            f"{row.requests - done:,}" if row.requests > done else "",
        )
    return table


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f} s"
