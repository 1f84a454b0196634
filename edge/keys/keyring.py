"""Whose a key is. Pure: the file's keys and the time come in, a key or a refusal comes out."""

import hashlib
import hmac
from collections.abc import Iterable

from chassis.errors import Fault
from edge.keys.credential import invalid
from edge.keys.entry import Key

_NOBODY = Key("", (bytes(32),), "")


class Keyring:
    """Keys by the digest of their secret."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._by_digest = {digest: (digest, key) for key in keys for digest in key.digests}

    def __len__(self) -> int:
        return len(self._by_digest)

    def holder(self, secret: bytes | None, now_unix_s: float) -> Key:
        """The key that this secret is. Raises Fault.

        One that was disabled looks like one that never was: who holds it and should not learns
        nothing. One that expired says so, as only its holder can ask for another.
        """
        if not self._by_digest:
            raise invalid(
                "This house has no API keys yet, so it answers nobody; make one with "
                "`cohabit keys add NAME` where it runs."
            )
        if secret is None:
            raise invalid(
                "This house asks for an API key: send it in the header `authorization: Bearer …` "
                "or `x-api-key: …`."
            )
        key = self._find(secret)
        if key is None or key.disabled:
            raise _unknown()
        if key.expires_unix_s is not None and now_unix_s >= key.expires_unix_s:
            raise invalid("The API key has expired; ask whoever runs this house for another.")
        return key

    def _find(self, secret: bytes) -> Key | None:
        # The way is the same for all: one digest, one look, one comparison in constant time. What
        # the look's time may tell is about the digest, which nobody can choose.
        digest = hashlib.sha256(secret).digest()
        known, key = self._by_digest.get(digest, (bytes(32), _NOBODY))
        return key if hmac.compare_digest(known, digest) else None


def _unknown() -> Fault:
    return invalid(
        "The API key is not one of this house's, or not any more; ask whoever runs it for another."
    )
