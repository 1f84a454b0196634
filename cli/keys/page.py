"""The keys of a file, as a table for people and as JSON for scripts. No hash is shown."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table

from cli.page import table_of
from edge.keys.entry import Key

_COLUMNS = ("name", "state", "tier", "#a minute", "#at once", "models", "expires", "shares as")


def keys_table(keys: Sequence[Key], now_unix_s: float) -> Table:
    """A row a key."""
    table = table_of("Keys", *_COLUMNS)
    for key in keys:
        table.add_row(
            key.name,
            state_of(key, now_unix_s),
            key.tier or "",
            _number(key.bounds.requests_per_minute),
            _number(key.bounds.concurrent),
            _models(key),
            _time(key.expires_unix_s),
            key.fairness_key if key.fairness_key != key.name else "",
        )
    return table


def as_json(keys: Sequence[Key], now_unix_s: float) -> str:
    """Everything but the hashes."""
    return json.dumps([_plain(key, now_unix_s) for key in keys], indent=2)


def state_of(key: Key, now_unix_s: float) -> str:
    """Whether it is taken, in a word or two."""
    if key.disabled:
        return "disabled"
    if key.expires_unix_s is not None and now_unix_s >= key.expires_unix_s:
        return "expired"
    return "rotating" if len(key.digests) > 1 else "active"


def _plain(key: Key, now_unix_s: float) -> dict[str, object]:
    return {
        "name": key.name,
        "state": state_of(key, now_unix_s),
        "tier": key.tier,
        "fairness_key": key.fairness_key,
        "requests_per_minute": key.bounds.requests_per_minute,
        "concurrent": key.bounds.concurrent,
        "models": None if key.models is None else sorted(key.models),
        "expires": _time(key.expires_unix_s) or None,
        "signals": key.signals,
    }


def _models(key: Key) -> str:
    asked = "all" if key.models is None else ", ".join(sorted(key.models)) or "none"
    return f"{asked}, signals" if key.signals else asked


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _time(unix_s: float | None) -> str:
    if unix_s is None:
        return ""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
