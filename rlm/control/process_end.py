"""The end of a process whose threads may hang."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

OUTPUT_LOST = 120
"""Python's own exit code for standard output that could not be written."""


def end_process(status: int) -> NoReturn:
    """End this process with the exit code `status`, and do not wait for its threads.

    Python joins every thread of a pool before it exits, and one may hang for ever in a call on a
    dead disk or mount. `OUTPUT_LOST` in place of 0 when standard output can't be written.
    """
    logging.shutdown()
    try:
        if sys.stdout is not None:  # None where it was closed from the start
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        os.write(2, f"the output could not be written: {error}\n".encode())
        status = status or OUTPUT_LOST
    os._exit(status)
