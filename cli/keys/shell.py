"""What `cohabit keys` does, once it is understood."""

import hashlib
import secrets
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chassis import config
from cli.console import Refused, note
from cli.keys import editing, page, writing
from cli.page import or_none, print_page
from edge.config import EdgeConfig
from edge.keys.file import HASH_PREFIX, NAME, read_keys

_PREFIX = "sk-cohabit-"
_SECRET_BYTES = 32


def file_of(config_path: Path | None, named: Path | None) -> Path:
    """The file of keys: the one that is named, or the edge's own. Raises Refused."""
    if named is not None:
        return named
    try:
        document = config.load(config_path)
        path = document.section("edge", EdgeConfig).located(document.path.parent).keys_file
    except config.ConfigError as error:
        config.fail(error)
    if path is None:
        raise Refused(
            f"{document.path} names no edge.keys_file; add one there, or name a file with --file."
        )
    return path


def add(path: Path, name: str, rights: dict[str, Any]) -> None:
    """Make a key and print it; it stands nowhere else."""
    if not NAME.fullmatch(name):
        raise Refused(
            f"{name[:80]!r} is no name for a key: take 1 to 64 letters, digits, dots, dashes and "
            "underscores."
        )
    secret = _new_secret()
    entry = {"hash": _hash(secret)} | {k: v for k, v in rights.items() if v is not None}
    _change(path, lambda text: editing.added(text, name, entry))
    note(f"The key of {name}, which is shown this once; {path} has its hash:")
    print(secret)


def rotate(path: Path, name: str) -> None:
    """Make another secret for a key; the one before stays good until it is finished."""
    secret, former = _new_secret(), _own_hash(path, name)
    fields = {"hash": _hash(secret), "former_hash": former}
    _change(path, lambda text: editing.changed(text, name, fields))
    note(
        f"The new key of {name}, which is shown this once. The former one is taken until "
        f"`cohabit keys rotate {name} --finish`:"
    )
    print(secret)


def finish(path: Path, name: str) -> None:
    """Take the former secret of a key no longer."""
    _change(path, lambda text: editing.changed(text, name, {"former_hash": None}))


def enable(path: Path, name: str, *, disabled: bool) -> None:
    """Take a key, or not."""
    _change(path, lambda text: editing.changed(text, name, {"disabled": disabled or None}))


def remove(path: Path, name: str) -> None:
    """Forget a key."""
    _change(path, lambda text: editing.removed(text, name))


def show(path: Path, *, as_json: bool) -> None:
    """Print what keys there are."""
    try:
        keys = read_keys(path)
    except config.ConfigError as error:
        config.fail(error)
    if as_json:
        print(page.as_json(keys, time.time()))
    else:
        print_page([or_none(page.keys_table(keys, time.time()))])


def moment(written: str | None, now: datetime | None = None) -> datetime | None:
    """A time as people give it: a date, a time, or so many days from now. Raises Refused."""
    if written is None:
        return None
    try:
        if written.endswith("d") and written[:-1].isdecimal():
            after = (now or datetime.now(UTC)) + timedelta(days=int(written[:-1]))
            return after.replace(microsecond=0)
        told = datetime.fromisoformat(written)
    except (ValueError, OverflowError):
        raise Refused(
            f"--expires {written[:40]} is no time; give a date such as 2027-01-31, a time such as "
            "2027-01-31T18:00:00Z, or days from now such as 90d."
        ) from None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def _change(path: Path, edit: Any) -> None:
    try:
        writing.change(path, edit)
    except config.ConfigError as error:
        config.fail(error)


def _own_hash(path: Path, name: str) -> str:
    try:
        keys = {key.name: key for key in read_keys(path)}
    except config.ConfigError as error:
        config.fail(error)
    if name not in keys:
        raise Refused(f"There is no key {name}; `cohabit keys list` shows those that there are.")
    return HASH_PREFIX + keys[name].digests[0].hex()


def _new_secret() -> str:
    return _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def _hash(secret: str) -> str:
    return HASH_PREFIX + hashlib.sha256(secret.encode()).hexdigest()
