"""The file of keys: YAML, a name and what its key may do, checked as strictly as cohabit.yaml.

    alice:
      hash: sha256:9f86d0…
      tier: sub
      requests_per_minute: 60

A key is 256 bits of chance, so one round of SHA-256 hides it well enough: there is no dictionary
to try, and a slow hash would only make every request pay for what passwords need.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from chassis.config import ConfigError, Document, Section, read_beside
from edge.config import TierName
from edge.keys.core import Bounds
from edge.keys.entry import Key

MOST_KEYS = 4096
MOST_BYTES = 4 * 1024 * 1024
HASH_PREFIX = "sha256:"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_MODELS = 1024

_Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[!-~]([ -~]*[!-~])?$")]
_Model = Annotated[str, Field(min_length=1, max_length=256)]


def _unix_s(value: Any) -> float:
    """A time of YAML, or as text; without a zone it is UTC, and a date is its first moment."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    raise ValueError("expected a date or a time, e.g. 2027-01-31 or 2027-01-31T18:00:00Z")


class KeyEntry(Section):
    """What stands below a name."""

    hash: str
    """`sha256:` and the hexadecimal digest of the key."""
    former_hash: str | None = None
    """Of the key before this one, which is still taken: for the time in which clients change."""
    tier: TierName | None = None
    """The highest tier it gets; without, `edge.open_tier_ceiling`."""
    fairness_key: _Word | None = None
    """Among whom it shares; without, its name."""
    requests_per_minute: int | None = Field(None, ge=1, le=1_000_000)
    """So many at once, and then as many a minute; without, no limit."""
    concurrent: int | None = Field(None, ge=1, le=100_000)
    """Requests in progress at once; without, no limit."""
    models: list[_Model] | None = Field(None, max_length=_MOST_MODELS)
    """Models and families it may ask; without, all; an empty list, none."""
    expires: Annotated[float | None, BeforeValidator(_unix_s)] = None
    """It is taken until then: a time, or a date, which is its first moment in UTC."""
    disabled: bool = False
    """It is not taken."""
    signals: bool = False
    """It may read /metrics, /status and /errors."""


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file; none when there is no file. Raises ConfigError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    if not S_ISREG(found.st_mode):  # a pipe would be waited for without end
        raise ConfigError(f"{path}: expected a file")
    if found.st_size > MOST_BYTES:
        raise ConfigError(f"{path}: expected at most {MOST_BYTES} bytes, got {found.st_size}")
    return keys_of(read_beside(path))


def keys_of(document: Document) -> tuple[Key, ...]:
    """The keys of a file that has been read. Raises ConfigError."""
    if len(document.data) > MOST_KEYS:
        raise ConfigError(f"{document.path}: expected at most {MOST_KEYS} keys")
    keys = tuple(_key(document, name) for name in document.data)
    _check_distinct(document, keys)
    return keys


def _key(document: Document, name: str) -> Key:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{document.where((name,))}: {name[:80]!r}: expected a name of 1 to 64 letters, "
            "digits, dots, dashes and underscores"
        )
    _check_hashes(document, name)
    entry = document.section(name, KeyEntry)
    hashes = [text for text in (entry.hash, entry.former_hash) if text is not None]
    return Key(
        name=name,
        digests=tuple(bytes.fromhex(text.removeprefix(HASH_PREFIX)) for text in hashes),
        fairness_key=entry.fairness_key or name,
        tier=entry.tier,
        bounds=Bounds(entry.requests_per_minute, entry.concurrent),
        models=None if entry.models is None else frozenset(entry.models),
        expires_unix_s=entry.expires,
        disabled=entry.disabled,
        signals=entry.signals,
    )


def _check_hashes(document: Document, name: str) -> None:
    # Before anything else: what is told of other wrong values quotes them, and here somebody may
    # have written the key itself.
    entry = document.data[name]
    if not isinstance(entry, Mapping | None):
        raise ConfigError(
            f"{document.where((name,))}: {name}: expected keys with values below the name, such as "
            "`hash`, as `cohabit keys add` writes them; never the key itself"
        )
    for field in ("hash", "former_hash"):
        if entry is None or field not in entry:
            continue
        if not isinstance(entry[field], str) or not _HASH.fullmatch(entry[field]):
            raise ConfigError(
                f"{document.where((name, field))}: {name}.{field}: expected sha256: and 64 "
                "hexadecimal digits, as `cohabit keys add` writes them; never the key itself"
            )


def _check_distinct(document: Document, keys: tuple[Key, ...]) -> None:
    owners: dict[bytes, str] = {}
    for key in keys:
        for digest in key.digests:
            if (other := owners.setdefault(digest, key.name)) != key.name:
                raise ConfigError(
                    f"{document.where((key.name, 'hash'))}: {key.name}.hash: expected a key of its "
                    f"own; {other} has the same"
                )
