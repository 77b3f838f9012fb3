"""Entry point of a worker process, started by a node: `python -m strandline.node.worker_process
LOG_FORMAT NODE_ID SOCKET_FD`.
"""

from __future__ import annotations

import os
import sys

from rlm.control.surroundings import Ambient
from rlm.worker import worker
from strandline.node import ambient
from strandline.node.event_loop import new_loop
from strandline.settings.log_lines import WORKER_TEXT, start_logging

NICENESS = 5
"""Lower priority than the supervisor, whose event loop must be on time, and than the broker."""


def main(arguments: list[str]) -> None:
    """Serve the node at the other end of the socket; does not return."""
    if len(arguments) != 3 or not all(each.isdecimal() for each in arguments[1:]):
        raise SystemExit("a node starts its workers itself: run `strandline node`")
    log_format, node_id, socket_fd = arguments
    start_logging("json" if log_format == "json" else "text", int(node_id), text=WORKER_TEXT)
    os.nice(NICENESS)
    worker.run(
        int(socket_fd),
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
