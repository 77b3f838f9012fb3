"""Check of the files with secrets: only the node's user should be able to read them.

A file of a different user may be readable for a group of the node's user: this is how Kubernetes
(`fsGroup`) and systemd (`LoadCredential`) give secrets to a process that is not root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from strandline.doctor.finding import Finding
from strandline.settings.settings import Settings

_OTHERS = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def private_files(settings: Settings) -> dict[str, Path]:
    """The files whose content is a secret, by setting."""
    files = {
        "kafka.sasl_password_file": settings.kafka.sasl_password_file,
        "kafka.ssl_key_file": settings.kafka.ssl_key_file,
        "http.tls_key_file": settings.http.tls_key_file,
        "quorum.secret_file": settings.quorum.secret_file,
        "quorum.tls_key_file": settings.quorum.tls_key_file,
        "read.tls_key_file": settings.read.tls_key_file,
    }
    for name, store in settings.stores.items():
        files[f"stores.{name}.credentials_file"] = store.credentials_file
        for key_id, path in store.aiven_keys.items():
            files[f"stores.{name}.aiven_keys.{key_id}"] = path
    return {setting: path for setting, path in files.items() if path is not None}


def check_private_files(settings: Settings) -> Iterator[Finding]:
    """A finding for each file with a secret: readable for the node, and for no other user."""
    for setting, path in private_files(settings).items():
        check = f"{setting} {path}"
        try:
            file = path.stat()
            path.open("rb").close()
        except OSError as error:
            yield Finding(check, False, f"can't be read: {error.strerror}")
            continue
        mode = stat.S_IMODE(file.st_mode)
        if mode & _OTHERS or (mode & stat.S_IRGRP and not _handed_to_us(file)):
            detail = f"other users can read or change it (mode {mode:04o}): chmod 600 {path}"
            yield Finding(check, False, detail)
        else:
            yield Finding(check, True, f"private (mode {mode:04o})")


def _handed_to_us(file: os.stat_result) -> bool:
    """True if the file belongs to a different user, and to a group of this process."""
    return file.st_uid != os.geteuid() and file.st_gid in (os.getegid(), *os.getgroups())
