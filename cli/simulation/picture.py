"""The timeline as SVG: who lived on the card when, how full it was, who waited.

One row a model, beneath them the card's memory and one strip a tier. Its size is bounded by rows
and columns, however long the replay was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from cli.console import printable
from cli.simulation.columns import Scale, fullest, most_waiting, phase_runs
from cli.simulation.record import Phase, Record
from cli.simulation.setup import Setup
from services.scheduler.core.values import Tier

_LEFT, _PLOT, _RIGHT = 170, 1100, 30
_ROW, _BAR = 17, 13
_TOP, _GAP = 84, 34
_MEMORY, _STRIP = 96, 40
_MOST_ROWS = 120
_MOST_NAME = 26
_TICKS = 13

_PHASES = {
    Phase.BUSY: ("#1d4ed8", "running requests"),
    Phase.IDLE: ("#a9c6f5", "resident, idle"),
    Phase.LOADING: ("#f59e0b", "loading"),
    Phase.DRAINING: ("#dc2626", "draining"),
}
_MEMORIES = (("#a9c6f5", "models"), ("#7c3aed", "requests' peaks"), ("#9ca3af", "foreign tenants"))
_TIERS = {
    Tier.PAID: "#7c3aed",
    Tier.SUB: "#0f766e",
    Tier.FREE: "#65a30d",
    Tier.BACKGROUND: "#78716c",
}
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2937}"
    ".name{text-anchor:end}.title{font-size:16px;font-weight:600}"
    ".tick{text-anchor:middle;fill:#6b7280}.small{font-size:11px;fill:#6b7280}"
)
_STEPS_S = (1, 5, 15, 60, 300, 900, 3600, 7200, 14400, 28800, 86400, 7 * 86400, 30 * 86400)


@dataclass(slots=True)
class _Canvas:
    """Elements so far."""

    parts: list[str] = field(default_factory=list)

    def rect(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>'
        )

    def path(self, data: str, fill: str) -> None:
        if data:
            self.parts.append(f'<path d="{data}" fill="{fill}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str) -> None:
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="{stroke}"/>')

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        said = escape(printable(text))
        kind = f' class="{style}"' if style else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{kind}>{said}</text>')


def draw(title: str, setup: Setup, record: Record) -> str:
    """The picture of a replay."""
    scale = Scale(_PLOT, max(1, record.ended_ms))
    rows = _rows(setup, record)
    tiers = sorted({fate.tier for fate in record.fates}, reverse=True)
    memory_y = _TOP + len(rows) * _ROW + _GAP
    strips_y = memory_y + _MEMORY + _GAP
    bottom = strips_y + len(tiers) * (_STRIP + 8)
    canvas = _Canvas()
    canvas.rect(0, 0, _LEFT + _PLOT + _RIGHT, bottom + 30, "#ffffff")
    canvas.text(_LEFT, 24, title, "title")
    _legend(canvas)
    _ticks(canvas, scale, bottom)
    _residents(canvas, scale, rows, record)
    _memory(canvas, scale, memory_y, setup.card.total_mib, record)
    for index, tier in enumerate(tiers):
        _strip(canvas, scale, strips_y + index * (_STRIP + 8), tier, record)
    return _document(canvas, _LEFT + _PLOT + _RIGHT, bottom + 30)


def _document(canvas: _Canvas, width: int, height: int) -> str:
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n<style>{_STYLE}</style>\n'
        + "\n".join(canvas.parts)
        + "\n</svg>\n"
    )


def _rows(setup: Setup, record: Record) -> list[str]:
    """The models in the order of the configuration; of very many those that were loaded first."""
    keys = list(setup.profiles)
    if len(keys) > _MOST_ROWS:
        keys.sort(key=lambda key: -len(record.phases.get(key, ())))
    return keys[:_MOST_ROWS]


def _legend(canvas: _Canvas) -> None:
    x = float(_LEFT)
    for fill, name in (*_PHASES.values(), *_MEMORIES[1:]):
        canvas.rect(x, 38, 14, 12, fill)
        canvas.text(x + 20, 48, name)
        x += 46 + 6.6 * len(name)


def _ticks(canvas: _Canvas, scale: Scale, bottom: float) -> None:
    span_s = scale.span_ms / 1000
    step_s = next((step for step in _STEPS_S if span_s / step <= _TICKS), _STEPS_S[-1])
    count = int(span_s // step_s) + 1
    skip = max(1, count // (2 * _TICKS))
    for number in range(0, count, skip):
        x = _LEFT + number * step_s / span_s * _PLOT
        canvas.line(x, _TOP - 6, x, bottom, "#e5e7eb")
        canvas.text(x, _TOP - 12, _clock(number * step_s), "tick")
        canvas.text(x, bottom + 16, _clock(number * step_s), "tick")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}" + (f":{rest:02}" if rest else "")


def _residents(canvas: _Canvas, scale: Scale, rows: Sequence[str], record: Record) -> None:
    for index, key in enumerate(rows):
        y = _TOP + index * _ROW
        name = key if len(key) <= _MOST_NAME else f"{key[: _MOST_NAME - 1]}…"
        canvas.text(_LEFT - 10, y + _BAR - 2, name, "name")
        canvas.line(_LEFT, y + _BAR + 1.5, _LEFT + _PLOT, y + _BAR + 1.5, "#f3f4f6")
        runs = phase_runs(scale, record.phases.get(key, [(0, Phase.AWAY)]))
        for phase, (fill, _) in _PHASES.items():
            boxes = (
                f"M{_LEFT + run.first} {y}h{run.length}v{_BAR}h-{run.length}z"
                for run in runs
                if run.phase is phase
            )
            canvas.path("".join(boxes), fill)


def _memory(canvas: _Canvas, scale: Scale, y: float, total_mib: int, record: Record) -> None:
    canvas.text(_LEFT - 10, y + 12, "memory, at its peaks", "name")
    canvas.text(_LEFT - 10, y + 28, f"of {total_mib:,} MiB", "name")
    used = fullest(scale, record.memory)
    base = [0.0] * scale.count
    for part, (fill, _) in enumerate(_MEMORIES):
        heights = [each[part] * _MEMORY / total_mib for each in used]
        top = [low + height for low, height in zip(base, heights, strict=True)]
        canvas.path(_area(base, top, y + _MEMORY), fill)
        base = top
    canvas.line(_LEFT, y, _LEFT + _PLOT, y, "#dc2626")
    canvas.line(_LEFT, y + _MEMORY, _LEFT + _PLOT, y + _MEMORY, "#9ca3af")


def _strip(canvas: _Canvas, scale: Scale, y: float, tier: Tier, record: Record) -> None:
    waiting = most_waiting(scale, record.waiting, tier)
    most = max(waiting)
    canvas.text(_LEFT - 10, y + 14, f"{tier.name.lower()} waiting", "name")
    canvas.text(_LEFT - 10, y + 30, f"at most {most:,}", "name")
    heights = [count * (_STRIP - 4) / max(1, most) for count in waiting]
    canvas.path(_area([0.0] * scale.count, heights, y + _STRIP), _TIERS[tier])
    canvas.line(_LEFT, y + _STRIP, _LEFT + _PLOT, y + _STRIP, "#9ca3af")


def _area(low: Sequence[float], high: Sequence[float], floor_y: float) -> str:
    """Columns from `low` to `high` above the floor; columns of one height are one box."""
    boxes, first = [], 0
    for column in range(1, len(high) + 1):
        if column < len(high) and (low[column], high[column]) == (low[first], high[first]):
            continue
        if high[first] - low[first] > 0.05:
            boxes.append(_box(first, column - first, floor_y - high[first], floor_y - low[first]))
        first = column
    return "".join(boxes)


def _box(first: int, width: int, top: float, bottom: float) -> str:
    return f"M{_LEFT + first} {top:.1f}h{width}V{bottom:.1f}h-{width}z"
