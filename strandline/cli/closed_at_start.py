"""Standard descriptors that were closed when the process began."""

from __future__ import annotations

import os
import sys


def open_what_is_closed() -> None:
    """Open closed ones of the descriptors 0 to 2 on /dev/null.

    Otherwise the next file that is opened, perhaps one of the database, would be descriptor 2, and
    get what libraries write to standard error.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free one is this one: those below are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python sets streams of closed descriptors to None.
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
