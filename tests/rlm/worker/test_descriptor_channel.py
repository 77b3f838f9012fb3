"""Descriptors lent from process to process; here both ends are one."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator

import pytest

from kafka_formats.errors import InternalError, RetryLater
from rlm.worker.descriptor_channel import send_descriptor, take_descriptor


@pytest.fixture
def channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_come_one_by_one_in_their_order(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    pipes = [os.pipe() for _ in range(3)]
    for number, (_, end) in enumerate(pipes):
        send_descriptor(channel[0], number, end)
        os.close(end)
    for number, (begin, _) in enumerate(pipes):
        taken = take_descriptor(channel[1], number)
        os.write(taken, b"%d" % number)
        os.close(taken)
        assert os.read(begin, 10) == b"%d" % number
        assert os.read(begin, 10) == b""  # nobody else has it open
        os.close(begin)


def test_a_process_that_may_open_no_more_files_refuses_that_connection_and_takes_the_next(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    send_descriptor(channel[0], 1, channel[0].fileno())
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
    try:
        with pytest.raises(RetryLater, match="LimitNOFILE"):
            take_descriptor(channel[1], 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    send_descriptor(channel[0], 2, channel[0].fileno())
    os.close(take_descriptor(channel[1], 2))


def test_one_of_another_job_is_not_taken_for_ours(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    before = open_files()
    send_descriptor(channel[0], 7, channel[0].fileno())
    with pytest.raises(InternalError, match="no descriptor of job 8"):
        take_descriptor(channel[1], 8)
    assert open_files() == before


def test_a_worker_that_takes_none_is_given_no_more(
    channel: tuple[socket.socket, socket.socket],
) -> None:
    def send_without_end() -> None:
        for number in range(100_000):
            send_descriptor(channel[0], number, channel[0].fileno())

    with pytest.raises(RetryLater, match="cannot be given a connection"):
        send_without_end()
