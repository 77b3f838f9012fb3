"""Sockets between Spark and its Python workers, in a folder of their own.

Over TCP, as Spark has it, every Python task waits 40 ms: the end of what Spark sends is held back
until the worker's kernel acknowledges its beginning, which that one puts off (Nagle's algorithm
and delayed acknowledgements). Sockets of the file system know neither.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
PATH_BYTES_MAX = 103
"""Of a socket's path, on macOS; Linux takes 107."""
NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")


def worker_sockets(master: str) -> dict[str, str]:
    """Settings of a session whose workers are on this machine; none for another master, whose
    machines may have too long a path for temporary files.

    Who can connect to such a socket is not asked for a secret, so that only this user may enter the
    folder. It goes when this process ends.
    """
    if not master.startswith("local") or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = tempfile.mkdtemp(prefix="strandline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder.encode()) + NAME_BYTES > PATH_BYTES_MAX:
        return {}
    return {ENABLED: "true", FOLDER: folder}
