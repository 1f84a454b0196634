"""Tokens that only this house can have made: HMAC-SHA256 over a short text.

The key lives in `state_dir/secret`, made on first use and shared by the services of one host.
"""

import hmac
import os
import secrets
from pathlib import Path

_SIGNATURE_CHARS = 32
_MOST_CHARS = 256


class Signer:
    """Signs and checks texts of at most 256 characters."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def from_dir(cls, state_dir: Path) -> "Signer":
        """Read the key of this host, making it if this is the first service to ask."""
        state_dir.mkdir(parents=True, exist_ok=True)
        path = state_dir / "secret"
        draft = state_dir / f".secret.{secrets.token_hex(8)}"
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
        """`text` with its signature. Raises ValueError when it is too long to be checked."""
        if not 0 < len(text) <= _MOST_CHARS:
            raise ValueError(f"expected 1 to {_MOST_CHARS} characters to sign, got {len(text)}")
        return f"{text}.{self._mac(text)}"

    def check(self, token: str) -> str | None:
        """The text of a token we signed; None for any other."""
        text, _, mac = token[: _MOST_CHARS + _SIGNATURE_CHARS + 2].rpartition(".")
        # As bytes: compare_digest refuses characters beyond ASCII, and a stranger may send any.
        good = hmac.compare_digest(_bytes(mac), _bytes(self._mac(text)))
        return text if text and good else None

    def _mac(self, text: str) -> str:
        return hmac.digest(self._key, _bytes(text), "sha256").hex()[:_SIGNATURE_CHARS]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
