"""How soon the kernel runs this process once it has something to do, where others want the core.

Linux's scheduler (EEVDF, from 6.12 on) lets a program ask for shorter slices than the usual few
milliseconds: it gets no more of the processor, but sooner. That needs no privilege, unlike a
higher priority. Other kernels ignore it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""struct sched_attr, first version: size, policy, flags, nice, priority, runtime, deadline, period;
for ordinary policies the runtime is the slice, in nanoseconds.
"""

USUAL_S = 0.0


def set_time_slice(slice_s: float) -> bool:
    """For the calling thread and those that it starts from now on, processes included.

    `USUAL_S`: the kernel's own again. Whether the kernel took it, which promises nothing.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return False
    policy = os.sched_getscheduler(0)
    if policy not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return False  # somebody gave this process another one, which knows no such slices
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    wanted = _ATTRIBUTES.pack(_ATTRIBUTES.size, policy, 0, nice, 0, int(slice_s * 1e9), 0, 0)
    asked = ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_long(0), wanted, 0)
    return bool(asked == 0)
