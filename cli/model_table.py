"""The models as the scheduler uses them, as one table; and why those that failed did."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from cli.page import table_of
from cli.words import STATE_STYLES, flat, span, state_name, tier_name
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_KEYS_SHOWN = 3
_KEY_CHARS = 16
_NAME_CHARS = 20
"""Of a model's name that stay, however narrow the page."""
_WIDE = 100
"""Columns of a page that has room for every figure."""
_HERE = frozenset(
    {
        models_pb2.MODEL_STATE_READY,
        models_pb2.MODEL_STATE_LOADING,
        models_pb2.MODEL_STATE_DRAINING,
    }
)


def in_order(models: Iterable[pb.Status.ModelStatus]) -> list[pb.Status.ModelStatus]:
    """Those on the card, then those waited for, then those that failed, then the rest; by key."""

    def place(model: Any) -> tuple[bool, bool, bool, str]:
        failed = model.state == models_pb2.MODEL_STATE_FAILED
        return model.state not in _HERE, not model.waiting, not failed, model.model_key

    return sorted(models, key=place)


def model_table(
    models: Sequence[pb.Status.ModelStatus], now_ms: float, width: int = _WIDE
) -> Table:
    """A row a model. What waits gives way first on a narrow page, then long names."""
    wide = ("#peak", "#used") if width >= _WIDE else ()
    table = table_of(None, "model", "state", "#MiB", *wide, "#runs", "eviction", "waiting")
    longest = max((len(flat(model.model_key)) for model in models), default=0)
    table.columns[0].min_width = min(_NAME_CHARS, longest)
    for column in table.columns[1:-2]:
        column.no_wrap = True
    for model in models:
        peak = f"+{model.peak_transient_mib:,}" if model.peak_transient_mib else ""
        table.add_row(
            Text(flat(model.model_key), no_wrap=True, overflow="ellipsis"),
            _state(model),
            f"{model.resident_mib:,}",
            *((peak, _last_used(model, now_ms)) if wide else ()),
            str(model.running or ""),
            _eviction(model),
            Text(waiting(model.waiting), no_wrap=True, overflow="ellipsis"),
        )
    return table


def _state(model: pb.Status.ModelStatus) -> Text:
    word = state_name(model.state)
    many = f" {model.instances}/{model.max_instances}" if model.max_instances > 1 else ""
    return Text(word + (many if model.state in _HERE else ""), STATE_STYLES.get(word, "dim"))


def _last_used(model: pb.Status.ModelStatus, now_ms: float) -> str:
    if model.running:
        return "now"
    return span(now_ms - model.last_used_unix_ms) if model.last_used_unix_ms else ""


def _eviction(model: pb.Status.ModelStatus) -> Text:
    """Whether it may leave, and when its turn is."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if model.removed:
        return text.append("removed", "yellow")
    if model.leaving_for and model.state in _HERE:
        return text.append(f"for {flat(model.leaving_for)}", "yellow")
    if model.pinned:
        return text.append("pinned")
    if model.eviction_rank == 1:
        return text.append("next", "bold yellow")
    return text.append(str(model.eviction_rank or ""))


def waiting(lines: Iterable[pb.Status.Line]) -> str:
    """Who waits, by tier and key: "paid 3, free 12 (alice 7, bob 5)"."""
    tiers: dict[int, Counter[str]] = {}
    for line in lines:
        tiers.setdefault(line.tier, Counter())[line.fairness_key] += line.waiting
    return ", ".join(_of_tier(tier, tiers[tier]) for tier in sorted(tiers, reverse=True))


def _of_tier(tier: int, keys: Counter[str]) -> str:
    said = f"{tier_name(tier)} {keys.total()}"
    named = [(key, count) for key, count in keys.most_common() if key]
    if not named:
        return said
    shown = [f"{_clipped(key)} {count}" for key, count in named[:_KEYS_SHOWN]]
    more = ["…"] if len(named) > _KEYS_SHOWN else []
    return f"{said} ({', '.join([*shown, *more])})"


def _clipped(key: str) -> str:
    key = flat(key)
    return key if len(key) <= _KEY_CHARS else f"{key[: _KEY_CHARS - 1]}…"


def failures(models: Iterable[pb.Status.ModelStatus], now_ms: float) -> list[str]:
    """A sentence for each model that failed."""
    said = []
    for model in models:
        if model.state != models_pb2.MODEL_STATE_FAILED:
            continue
        left_ms = model.retry_at_unix_ms - now_ms
        again = f" (not tried again for {span(left_ms)})" if left_ms > 0 else ""
        said.append(f"{flat(model.model_key)} failed: {flat(model.failure)}{again}")
    return said
