"""Entry of a worker process: `python -m strandline.worker_process SOCKET_FD`, started by a node."""

from __future__ import annotations

import logging
import os
import sys

from rlm import worker
from rlm.limits import Ambient
from strandline import ambient
from strandline.event_loop import new_loop
from strandline.time_slice import USUAL_S, set_time_slice

NICENESS = 5
"""Behind the supervisor, whose event loop must be on time, and the broker on the same machine."""


def main(arguments: list[str]) -> None:
    """Serve the node that holds the other end of the socket; does not return."""
    if len(arguments) != 1 or not arguments[0].isdecimal():
        raise SystemExit("a node starts its workers itself: run `strandline node`")
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s worker %(process)d %(levelname)s %(message)s"
    )
    os.nice(NICENESS)
    set_time_slice(USUAL_S)  # short ones are its supervisor's
    worker.run(
        int(arguments[0]),
        Ambient(
            now_ms=ambient.now_ms,
            monotonic=ambient.monotonic,
            sleep=ambient.sleep,
            random_fraction=ambient.random_fraction,
            new_uuid=ambient.new_uuid,
        ),
        loop_factory=new_loop,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
