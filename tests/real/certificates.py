"""A certificate that is its own authority, made by the machine's openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.real.toolbox import require_program

KEYSTORE_PASSWORD = "keystore"


class Certificate(NamedTuple):
    """PEM files: the certificate (also the authority), its key, and both in one file."""

    certificate: Path
    key: Path
    both: Path


def make_certificate(folder: Path, *names: str) -> Certificate:
    """A fresh one in `folder` for 127.0.0.1 and `names`, good for a server and for a client."""
    subject = ",".join(("IP:127.0.0.1", *(f"DNS:{name}" for name in names)))
    made = Certificate(folder / "cert.pem", folder / "key.pem", folder / "both.pem")
    subprocess.run(
        [
            *(require_program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", f"subjectAltName={subject}"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    made.both.write_text(made.key.read_text() + made.certificate.read_text())
    return made


def encrypted_key(of: Certificate) -> Path:
    """The key once more, beside it, under a password."""
    key = of.key.with_name("encrypted.pem")
    encrypt = (require_program("openssl"), "pkey", "-aes256", "-passout", "pass:secret")
    subprocess.run([*encrypt, "-in", of.key, "-out", key], check=True, timeout=60)
    return key


def keystore(of: Certificate) -> Path:
    """The certificate and its key as PKCS12, beside it, under KEYSTORE_PASSWORD."""
    store = of.key.with_name("keystore.p12")
    export = (require_program("openssl"), "pkcs12", "-export", "-name", "client")
    password = ("-passout", f"pass:{KEYSTORE_PASSWORD}")
    subprocess.run([*export, *password, "-in", of.both, "-out", store], check=True, timeout=60)
    return store
