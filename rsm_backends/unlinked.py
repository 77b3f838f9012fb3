"""Opens the parts of a key's path in a filesystem store, none of which may be a symbolic link."""

from __future__ import annotations

import errno
import os
import stat

from kafka_formats.errors import Refused
from rsm_backends.arguments import shown

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OBJECT_FOR_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_unlinked(name: str, flags: int, folder: int, key: str) -> int:
    """A descriptor of the entry `name` of an open folder, on the way to `key`; `flags` are one of
    the constants above. Refused if it is a symbolic link; other OSErrors are raised on.
    """
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and _is_link(name, folder):
            raise Refused(
                f"{name!r} on the way to {shown(key)} is a symbolic link in the store's folder, "
                "and links are not followed: objects below it can be neither read nor deleted. Put "
                "the folder itself there, or mount its disk there; if it is not the tier's, remove "
                "the link"
            ) from None
        raise


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
