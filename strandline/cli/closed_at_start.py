"""Standard descriptors that were closed when the process began."""

from __future__ import annotations

import os
import sys


def open_what_is_closed() -> None:
    """Open those of the descriptors 0 to 2 that are closed, on /dev/null.

    Otherwise the next file that is opened, perhaps one of the database, would become descriptor 2,
    and libraries' output to standard error would go into it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # This is the lowest free descriptor: the lower ones are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python sets streams of closed descriptors to None.
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
