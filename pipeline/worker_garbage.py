"""Spark's Python workers look for garbage after every task, among all that is loaded there too.

That takes some 50 ms of CPU with the modules of Spark, Arrow and ours, which is as much as decoding
150 MB of records. What is alive once a worker has done a task of ours is nearly all of it modules:
set aside, it is not looked at any more, and only what tasks make is.
"""

from __future__ import annotations

import gc
from itertools import count

from pyspark import TaskContext

_tasks = count()


def begin_task() -> None:
    """At the start of each task; a process's second sets aside, and only in Spark's workers: other
    processes, as the driver's, are their users'.
    """
    # The first task imports what it needs, and Spark clears away behind it. To ask how much is set
    # aside counts all of it: as much CPU as it spares.
    if TaskContext.get() is not None and next(_tasks) == 1:
        gc.freeze()
