"""A file of keys and the secrets that fit it: what tests of API keys share."""

import hashlib
from pathlib import Path
from typing import Any

import yaml

FORMER, FOREVER = "1999-12-31", "2999-12-31"


def secret_of(name: str) -> str:
    """The key of that name, in every test's file."""
    return f"sk-cohabit-{name}-{hashlib.sha256(name.encode()).hexdigest()}"


def hash_of(secret: str) -> str:
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def bearing(name: str) -> dict[str, str]:
    """The header of a request with that key."""
    return {"authorization": f"Bearer {secret_of(name)}"}


def write_keys(path: Path, **rights: dict[str, Any]) -> Path:
    """A file with these keys, put in place as a whole."""
    draft = path.with_suffix(".new")
    entries = {name: {"hash": hash_of(secret_of(name))} | more for name, more in rights.items()}
    draft.write_text(yaml.safe_dump(entries))
    return draft.replace(path)
