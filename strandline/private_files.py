"""Files that hold secrets: nobody but the node's user should be able to read them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from strandline.finding import Finding
from strandline.settings import Settings

_OTHERS = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


def private_files(settings: Settings) -> dict[str, Path]:
    """Setting -> file, for every file whose content is a secret."""
    files = {
        "kafka.sasl_password_file": settings.kafka.sasl_password_file,
        "kafka.ssl_key_file": settings.kafka.ssl_key_file,
        "http.tls_key_file": settings.http.tls_key_file,
        "quorum.secret_file": settings.quorum.secret_file,
        "quorum.tls_key_file": settings.quorum.tls_key_file,
    }
    for name, store in settings.stores.items():
        files[f"stores.{name}.credentials_file"] = store.credentials_file
    return {setting: path for setting, path in files.items() if path is not None}


def check_private_files(settings: Settings) -> Iterator[Finding]:
    """One finding for each: readable by us, and by nobody else."""
    for setting, path in private_files(settings).items():
        check = f"{setting} {path}"
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            path.open("rb").close()
        except OSError as error:
            yield Finding(check, False, f"can't be read: {error.strerror}")
            continue
        if mode & _OTHERS:
            detail = f"others can read or change it (mode {mode:04o}): chmod 600 {path}"
            yield Finding(check, False, detail)
        else:
            yield Finding(check, True, f"private (mode {mode:04o})")
