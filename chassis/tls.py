"""Who this process is to other services, and whom it believes: TLS on TCP, never on Unix sockets.

A house has one authority, and every certificate that it signs is made out to one name, which is
what clients check whatever address they dial: engines come and go at addresses that no certificate
could list. Both sides show one, so whoever has none is refused before a call is heard.

The certificates belong to the process, as its log does: `adopt` once, before channels and servers
are opened. The files are read again when they have changed, and taken if they fit together; servers
show new ones from the next connection on, clients on channels that are opened from then on.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from chassis import log
from chassis.tls_check import UnusableError, check

Fetch = Callable[[], grpc.ServerCertificateConfiguration]

NAME = "cohabit.internal"
"""What every certificate of a house is made out to."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, by absolute paths."""

    ca: Path
    """The authority that signs every certificate of the house; without its key."""
    certificate: Path
    """Of this process, and whatever stands between it and the authority."""
    key: Path
    """Of the certificate; without a passphrase."""


@dataclass(frozen=True, slots=True)
class Pem:
    """What stands in the files."""

    ca: bytes
    certificate: bytes
    key: bytes


class Identity:
    """The certificates of a process, as they stand in their files. Any thread may ask."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises UnusableError."""
        self._files = files
        self._lock = threading.Lock()
        self._seen = _stamp(files)
        self._pem = self._read()

    def pem(self) -> Pem:
        """What to show from now on; what was shown before while the files do not fit together."""
        with self._lock:
            stamp = _stamp(self._files)
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._pem = self._read()
                except UnusableError as error:
                    # Not for ever: the next file of the three that is replaced is a new stamp.
                    log.get().warning("certificates not taken", key=error.key, why=str(error))
                else:
                    log.get().info("certificates taken", certificate=str(self._files.certificate))
            return self._pem

    def for_channel(self) -> grpc.ChannelCredentials:
        """What a client shows and believes."""
        pem = self.pem()
        return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)

    def for_server(self) -> grpc.ServerCredentials:
        """What a server shows, and whom it believes; asked again at each new connection."""
        shown = self.pem()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            pem = self.pem()
            if pem is shown:
                return None
            shown = pem
            return _configuration(pem)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(shown),
            cast("Fetch", fetch),  # None stands for no change, which its stubs do not know
            require_client_authentication=True,
        )

    def _read(self) -> Pem:
        files = self._files
        check(files.ca, files.certificate, files.key, NAME)
        return Pem(files.ca.read_bytes(), files.certificate.read_bytes(), files.key.read_bytes())


_own: Identity | None = None


def adopt(files: TlsFiles | None) -> None:
    """Be who the files say, in all that is opened from now on; None: TCP is plain. Raises
    UnusableError.
    """
    global _own  # noqa: PLW0603 - of the process, as its log is
    _own = Identity(files) if files is not None else None


def of_process() -> Identity | None:
    """Who this process is; None: it has no certificates, and its TCP is plain."""
    return _own


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)


def _stamp(files: TlsFiles) -> Hashable:
    return tuple(_looks(path) for path in (files.ca, files.certificate, files.key))


def _looks(path: Path) -> Hashable:
    try:
        stat = path.stat()  # of what a link leads to: secrets are mounted as links that are swapped
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
