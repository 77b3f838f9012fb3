"""Lets Spark and its Python workers talk over Unix sockets, in a folder of their own.

Over TCP, Spark's default, every Python task waits 40 ms: the end of Spark's message is held back
until the worker's kernel acknowledges its beginning, which the kernel delays (Nagle's algorithm and
delayed acknowledgements). Unix sockets have neither.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile

ENABLED = "spark.python.unix.domain.socket.enabled"
FOLDER = "spark.python.unix.domain.socket.dir"
PATH_BYTES_MAX = 103
"""Longest path of a socket on macOS; Linux allows 107."""
NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")


def worker_sockets(master: str) -> dict[str, str]:
    """Settings of a session whose workers run on this machine; empty for any other master, whose
    machines may have too long a path for temporary files.

    Spark asks for no secret on such a socket, so only this user may enter the folder. It is removed
    when this process ends.
    """
    if not master.startswith("local") or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = tempfile.mkdtemp(prefix="strandline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if len(folder.encode()) + NAME_BYTES > PATH_BYTES_MAX:
        return {}
    return {ENABLED: "true", FOLDER: folder}
