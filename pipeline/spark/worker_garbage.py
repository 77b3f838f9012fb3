"""Keeps loaded modules out of the garbage collection that Spark's workers run after every task.

With the modules of Spark, Arrow and Strandline it takes some 50 ms of CPU, as much as decoding
150 MB of records. After a worker's first task nearly all live objects belong to modules: they are
frozen, and from then on only objects of later tasks are examined.
"""

from __future__ import annotations

import gc
from itertools import count

from pyspark import TaskContext

_tasks = count()


def begin_task() -> None:
    """Call at the start of each task. The second task of a process freezes the live objects, but
    only in Spark's workers: other processes, such as the driver, belong to their users.
    """
    # The first task imports its modules, and Spark collects garbage after it. gc.get_freeze_count()
    # would cost as much CPU as freezing saves, so tasks are counted here.
    if TaskContext.get() is not None and next(_tasks) == 1:
        gc.freeze()
