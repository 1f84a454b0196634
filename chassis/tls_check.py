"""Whether certificates do: a handshake with oneself, in memory.

One that ends well says all at once: the files can be read, the key is the certificate's, the
authority has signed it, its time has come and is not over, it may serve and call, and it is made
out to the right name.
"""

import ssl
from pathlib import Path
from stat import S_ISREG
from typing import Literal

Key = Literal["ca", "certificate", "key"]
_TURNS = 6
"""A handshake takes three."""


class UnusableError(Exception):
    """The files do not do; `key` says which is at fault, the text what was expected of it."""

    def __init__(self, key: Key, expected: str) -> None:
        super().__init__(expected)
        self.key: Key = key


def check(ca: Path, certificate: Path, key: Path, name: str) -> None:
    """Raises UnusableError unless both sides of a connection could show these to each other."""
    _check_readable("ca", ca)
    _check_readable("certificate", certificate)
    _check_readable("key", key)
    _check_certificates("ca", ca)
    _check_certificates("certificate", certificate)
    server = _context(ssl.PROTOCOL_TLS_SERVER, ca, certificate, key)
    server.verify_mode = ssl.CERT_REQUIRED
    client = _context(ssl.PROTOCOL_TLS_CLIENT, ca, certificate, key)
    try:
        _shake(server, client, name)
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message.rstrip(".")
        raise UnusableError(
            "certificate",
            f"expected a certificate of {name}, signed by `ca`, to serve and to call with, got one "
            f"that is refused: {why[:1].lower()}{why[1:]}",
        ) from None
    except ssl.SSLError as error:
        raise UnusableError("certificate", f"expected a certificate that serves: {error}") from None


def _check_readable(key: Key, path: Path) -> None:
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            raise UnusableError(key, f"expected a readable PEM file, got {path}: not a file")
        with path.open("rb"):
            pass
    except OSError as error:
        said = error.strerror or error
        raise UnusableError(key, f"expected a readable PEM file, got {path}: {said}") from None


def _check_certificates(key: Key, path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, OSError):
        raise UnusableError(key, f"expected certificates as PEM, got {path}") from None


def _context(side: int, ca: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.load_verify_locations(ca)
    try:
        # A password of no length keeps OpenSSL from asking a terminal for one.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise UnusableError("key", f"expected the key of {certificate}, got {key}") from None
        raise UnusableError(
            "key", f"expected a private key as PEM, without a passphrase, got {key}"
        ) from None
    return context


def _shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_TURNS):
        sides = [side for side in sides if not _moved_on(side)]
        if not sides:
            return
    raise ssl.SSLError("the handshake does not end")


def _moved_on(side: ssl.SSLObject) -> bool:
    """Whether this side is through."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
