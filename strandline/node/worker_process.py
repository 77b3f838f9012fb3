"""Entry point of a worker process, which a node starts: `python -m strandline.node.worker_process
LOG_FORMAT NODE_ID PROGRAM_MARK SOCKET_FD`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from kafka_formats.errors import Refused
from rlm.control.surroundings import Ambient
from rlm.worker import worker
from strandline.node import ambient
from strandline.node.event_loop import new_loop
from strandline.node.program_mark import program_mark
from strandline.settings.log_lines import WORKER_TEXT, start_logging

NICENESS = 5
"""Niceness of the threads that do the work of copies, so that they yield to the supervisor, whose
event loop must be on time, and to the broker. The worker's event loop keeps its priority: it serves
reads, and on a busy machine consumers waited for it.
"""


def main(arguments: list[str]) -> None:
    """Serve the node at the other end of the socket until it closes; does not return. Refuses a
    node that loaded a different program: the package was replaced since its start.
    """
    if len(arguments) != 4 or not all(each.isdecimal() for each in (arguments[1], arguments[3])):
        raise SystemExit(
            "only a node starts worker processes: run `strandline node`. If a node started this "
            "one, a different release was installed since: restart the node"
        )
    log_format, node_id, nodes_mark, socket_fd = arguments
    start_logging("json" if log_format == "json" else "text", int(node_id), text=WORKER_TEXT)
    if nodes_mark != (mark := program_mark()):
        worker.refuse(
            int(socket_fd),
            Refused(
                f"the node runs release {nodes_mark}, and {mark} was installed since: restart the "
                "node"
            ),
        )
        raise SystemExit(1)
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
    # On Linux niceness is per thread; on other systems it may apply to the whole process.
    loop.set_default_executor(ThreadPoolExecutor(initializer=os.nice, initargs=(NICENESS,)))
    return loop


if __name__ == "__main__":
    main(sys.argv[1:])
