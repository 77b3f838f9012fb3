"""Lends open files from a supervisor to a worker, over a socket pair of their own.

asyncio's transports for messages carry bytes only. A descriptor is sent right before its message,
so that it has arrived when the message is read; both keep the same order.
"""

from __future__ import annotations

import array
import os
import socket
import struct

from kafka_formats.errors import InternalError, RetryLater

_JOB_ID = struct.Struct(">Q")


def send_descriptor(channel: socket.socket, job_id: int, descriptor: int) -> None:
    """Send a descriptor for the job; the sender keeps its own. RetryLater if that would block."""
    lent = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))
    try:
        # Not socket.send_fds: in Python 3.11 it ignores its flags, and would block.
        channel.sendmsg([_JOB_ID.pack(job_id)], [lent], socket.MSG_DONTWAIT)
    except OSError as error:
        raise RetryLater(f"a worker process cannot be given a connection: {error}") from error


def take_descriptor(channel: socket.socket, job_id: int) -> int:
    """Take the oldest descriptor, which must be this job's; the caller closes it.

    RetryLater if this process may open no more files: the kernel drops the descriptor then.
    """
    flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    room = socket.CMSG_LEN(array.array("i").itemsize)
    head, ancillary, seen, _ = channel.recvmsg(_JOB_ID.size, room, flags)
    descriptors = array.array("i", b"".join(data for _, _, data in ancillary))
    if len(descriptors) == 1 and head == _JOB_ID.pack(job_id):
        return descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    if not descriptors and seen & socket.MSG_CTRUNC and head == _JOB_ID.pack(job_id):
        raise RetryLater(
            "a worker process has as many files open as it may and cannot take a connection: raise "
            "the node's limit of open files (`ulimit -n`, LimitNOFILE)"
        )
    raise InternalError(f"no descriptor of job {job_id} came, but {len(descriptors)} of {head!r}")
