"""Entry point of a worker process, started by a node: `python -m strandline.node.worker_process
LOG_FORMAT NODE_ID SOCKET_FD`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from rlm.control.surroundings import Ambient
from rlm.worker import worker
from strandline.node import ambient
from strandline.node.event_loop import new_loop
from strandline.settings.log_lines import WORKER_TEXT, start_logging

NICENESS = 5
"""The work of copies, which is done in threads, has a lower priority than the supervisor, whose
event loop must be on time, and than the broker. The event loop, which serves reads, has not: on a
busy machine a consumer waited for each of its turns.
"""


def main(arguments: list[str]) -> None:
    """Serve the node at the other end of the socket; does not return."""
    if len(arguments) != 3 or not all(each.isdecimal() for each in arguments[1:]):
        raise SystemExit("a node starts its workers itself: run `strandline node`")
    log_format, node_id, socket_fd = arguments
    start_logging("json" if log_format == "json" else "text", int(node_id), text=WORKER_TEXT)
    worker.run(
        int(socket_fd),
        Ambient(
            now_ms=ambient.now_ms,
            monotonic=ambient.monotonic,
            sleep=ambient.sleep,
            random_fraction=ambient.random_fraction,
            new_uuid=ambient.new_uuid,
        ),
        loop_factory=_new_loop,
    )


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = new_loop()
    # Of Linux; elsewhere a thread's niceness may be its process's.
    loop.set_default_executor(ThreadPoolExecutor(initializer=os.nice, initargs=(NICENESS,)))
    return loop


if __name__ == "__main__":
    main(sys.argv[1:])
