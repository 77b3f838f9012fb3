"""The end of a process: its output, and threads that may hang."""

from __future__ import annotations

import logging
import os
import select
import sys
from typing import NoReturn

OUTPUT_LOST = 120
"""Python's own exit code for standard output that could not be written."""

OUTPUT_CLOSED = 141
"""Exit code of a program whose standard output has no reader any more, as behind `| head`: a
shell's code for one that SIGPIPE ended.

SIGPIPE ends no process of ours (Python ignores it at its start): a node, a copy or a Spark job
writes to sockets too, whose other ends may close at any moment.
"""


def end_process(status: int) -> NoReturn:
    """End this process with the exit code `status`, and do not wait for its threads.

    Python joins every thread of a pool before it exits, and one may hang for ever in a call on a
    dead disk or mount. The exit code is that of `flush_output`.
    """
    logging.shutdown()
    os._exit(flush_output(status))


def flush_output(status: int) -> int:
    """Write the rest of standard output; returns the exit code of a process that meant `status`.

    Instead of 0: `OUTPUT_LOST`, with a line on standard error, if it can't be written;
    `OUTPUT_CLOSED`, in silence, if it has no reader.
    """
    try:
        if sys.stdout is not None:  # None where it was closed from the start
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more when it exits by itself, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status or OUTPUT_CLOSED
    except (OSError, ValueError) as error:
        os.write(2, f"the output could not be written: {error}\n".encode())
        return status or OUTPUT_LOST
    return status


def output_is_closed() -> bool:
    """True if standard output or standard error is a pipe without a reader."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)
    closed = select.POLLERR | select.POLLHUP
    return any(found & closed for _, found in poll.poll(0))
