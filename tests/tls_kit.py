"""Certificates for tests, made by the script that the guide names."""

import subprocess
from pathlib import Path

from chassis.tls import TlsFiles

SCRIPT = Path(__file__).parents[1] / "scripts" / "certificates.sh"


def certify(folder: Path, days: int = 30) -> TlsFiles:
    """An authority and a certificate of its own in `folder`; again: a new certificate."""
    subprocess.run([SCRIPT, folder, str(days)], check=True, capture_output=True)
    return TlsFiles(folder / "ca.pem", folder / "service.pem", folder / "service.key")


def sign(folder: Path, name: str, extensions: str) -> TlsFiles:
    """Another certificate by the authority in `folder`, with other extensions."""
    key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
    (folder / f"{name}.ext").write_text(extensions)
    made = ["openssl", "req", "-new", "-newkey", "rsa:2048", "-noenc", "-subj", f"/CN={name}"]
    signed = ["openssl", "x509", "-req", "-CA", f"{folder}/ca.pem", "-CAkey", f"{folder}/ca.key"]
    for argv in (
        [*made, "-keyout", str(key), "-out", str(request)],
        [
            *signed,
            "-in",
            str(request),
            "-out",
            str(certificate),
            "-extfile",
            f"{folder}/{name}.ext",
        ],
    ):
        subprocess.run(argv, check=True, capture_output=True)
    return TlsFiles(folder / "ca.pem", certificate, key)


def misnamed(folder: Path) -> TlsFiles:
    """A certificate by the authority in `folder`, for another name."""
    return sign(folder, "misnamed", "subjectAltName=DNS:elsewhere.internal")
