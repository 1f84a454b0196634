"""Tokens that only this house can have made: HMAC-SHA256 over a short text.

The key lives in `state_dir/secret`, made on first use and shared by the services of one host.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

_SIGNATURE_CHARS = 32


class Signer:
    """Signs and checks texts of at most 256 characters."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def from_dir(cls, state_dir: Path) -> "Signer":
        """Read the key of this host, making it if this is the first service to ask."""
        state_dir.mkdir(parents=True, exist_ok=True)
        path = state_dir / "secret"
        draft = state_dir / f".secret.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(32))
        try:
            os.link(draft, path)  # whoever links first wins; the file is whole when it appears
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return cls(path.read_bytes())

    def sign(self, text: str) -> str:
        """`text` with its signature."""
        return f"{text}.{self._mac(text)}"

    def check(self, token: str) -> str | None:
        """The text of a token we signed; None for any other."""
        text, _, mac = token[:300].rpartition(".")
        return text if text and hmac.compare_digest(mac, self._mac(text)) else None

    def _mac(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:_SIGNATURE_CHARS]
