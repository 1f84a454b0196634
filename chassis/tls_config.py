"""The configured certificates, taken up by this process; what is wrong with them, by line."""

from chassis import tls
from chassis.config import ConfigError, Document
from chassis.tls_check import UnusableError


def files_of(document: Document) -> tls.TlsFiles | None:
    """The files of the house; None: its TCP is plain. Raises ConfigError."""
    named = document.house().tls
    return tls.TlsFiles(named.ca, named.certificate, named.key) if named is not None else None


def adopt(document: Document) -> None:
    """Be who the configuration says. Raises ConfigError that names file, line and key."""
    try:
        tls.adopt(files_of(document))
    except UnusableError as error:
        where = document.where(("tls", error.key))
        raise ConfigError(f"{where}: tls.{error.key}: {error}") from None
