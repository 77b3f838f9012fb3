"""What the kernel says of the slices that were asked for."""

from __future__ import annotations

import ctypes
import platform
import struct
import subprocess
import sys

import pytest

from strandline.time_slice import USUAL_S, set_time_slice

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275, "riscv64": 275}
SCHED_ATTR = struct.Struct("=IIQiIQQQ")
SHORT_S = 0.0004
KERNEL = tuple(map(int, platform.release().split(".")[:2])) if sys.platform == "linux" else (0,)

pytestmark = pytest.mark.skipif(
    KERNEL < (6, 12) or platform.machine() not in SCHED_GETATTR,
    reason="slices can be asked for on Linux from 6.12 on",
)


def slice_ns() -> int:
    """Of this thread."""
    found = ctypes.create_string_buffer(SCHED_ATTR.size)
    number = SCHED_GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, found, SCHED_ATTR.size, 0) == 0
    return int(SCHED_ATTR.unpack(found.raw)[5])


def test_a_short_slice_is_taken_and_the_usual_one_comes_back() -> None:
    usual = slice_ns()
    try:
        assert set_time_slice(SHORT_S)
        assert slice_ns() == SHORT_S * 1e9
    finally:
        assert set_time_slice(USUAL_S)
    assert slice_ns() == usual != SHORT_S * 1e9


def test_a_worker_does_not_keep_the_slices_of_its_supervisor() -> None:
    program = (
        "import sys, rlm.worker\n"
        "from tests.strandline.test_time_slice import slice_ns\n"
        "from strandline import worker_process\n"
        "rlm.worker.run = lambda *_, **__: print(slice_ns())\n"
        "worker_process.main(['text', '1', '0'])\n"
    )
    usual = slice_ns()
    set_time_slice(SHORT_S)
    try:
        told = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
    finally:
        set_time_slice(USUAL_S)
    assert int(told.stdout) == usual
