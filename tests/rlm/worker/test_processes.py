"""Real worker processes: how they start, die and hang, and how they are replaced."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import (
    NotFound,
    Refused,
    RetryLater,
)
from rlm.control.node_problem import ProblemArea
from rlm.data_plane.copy_job import CopyProgress
from rlm.data_plane.read_request import (
    LogRequest,
    RecordsRequest,
)
from rlm.worker import handle as worker_handle
from rlm.worker.handle import WorkerHandle
from rlm.worker.messages import Heartbeat
from rlm.worker.pool import WorkerPool
from strandline.node.worker_process import NICENESS
from tests.real.process_tree import runs
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import (
    COMMAND,
    LIMITS,
    SECRET,
    all_bytes,
    big_job,
    copied,
    pool_of,
    restarted,
)


async def test_secrets_are_neither_arguments_nor_environment(pool: WorkerPool) -> None:
    (pid,) = pool.pids
    for name in ("cmdline", "environ"):
        assert SECRET.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()


async def test_signals_of_the_terminal_are_the_supervisors_business(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    (pid,) = pool.pids
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGTERM)
    await copied(pool, replica)
    assert pool.pids == (pid,)


async def test_a_killed_worker_is_a_retry_and_is_replaced(
    pool: WorkerPool, replica: ReplicaWriter, tier: Path
) -> None:
    (pid,) = pool.pids
    killed: list[CopyProgress] = []

    def kill(progress: CopyProgress) -> None:
        if not killed:
            os.kill(pid, signal.SIGKILL)
        killed.append(progress)

    with pytest.raises(RetryLater, match="signal 9"):
        await pool.copy(big_job(replica, part_bytes=2_000), kill)
    assert killed[0].bytes_done < killed[0].bytes_total
    assert not list(tier.rglob("*.rsm-manifest"))
    await pool.copy(big_job(replica, attempt=1))
    assert pool.pids != (pid,)
    (log,) = tier.rglob("*.log")
    assert log.read_bytes() == replica.path(0, ".log").read_bytes()


async def test_workers_that_end_again_and_again_are_a_problem_of_the_node(
    pool: WorkerPool, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert pool.problems() == ()
        (pid,) = pool.pids
        os.kill(pid, signal.SIGKILL)
        await restarted(pool, pid)
    (problem,) = pool.problems()
    assert problem.area is ProblemArea.WORKERS
    assert "ended 3 times or more within 600 s" in problem.text
    assert "signal 9" in problem.text
    assert caplog.text.count("signal 9), a new one is started") == 3


async def to_the_end(stream: AsyncIterator[bytes]) -> None:
    async for _ in stream:
        continue


async def test_a_killed_worker_ends_its_reads(pool: WorkerPool, replica: ReplicaWriter) -> None:
    pieces = await copied(pool, replica)
    stream = pool.read_log(LogRequest(pieces.pieces[0].segment))
    await anext(stream)
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RetryLater):
        await to_the_end(stream)
    await restarted(pool, pid)
    stream = pool.read_records(RecordsRequest(0, 10**9), pieces)
    assert b"".join([part async for part in stream]) == all_bytes(replica)


async def test_a_silent_worker_is_killed_and_replaced(tier: Path, replica: ReplicaWriter) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, silence_deadline_s=1.0))
    await pool.start()
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RetryLater, match="silent"):
        await pool.copy(big_job(replica))
    await pool.copy(big_job(replica, attempt=1))
    assert pool.pids != (pid,)
    await pool.close()


async def test_a_worker_that_does_not_confirm_a_cancellation_is_killed(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, cancel_deadline_s=0.3))
    await pool.start()
    (pid,) = pool.pids
    os.kill(pid, signal.SIGSTOP)
    task = asyncio.create_task(pool.copy(big_job(replica)))
    while not pool._workers[0].jobs:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not Path(f"/proc/{pid}").exists()
    await pool.close()


async def test_a_store_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="missing"):
        await pool_of(tmp_path / "missing").start()


SCRIPTS = {
    # 255 is what asyncio's own loop (used by tests only) makes of an exit that the kill collected.
    "ends at once": ("import sys; sys.exit(3)", RetryLater, "exit status (3|255)|signal 9"),
    "never gets ready": ("import time; time.sleep(600)", RetryLater, "not ready within"),
    "says nonsense": (
        "import pickle, socket, struct, sys\n"
        "body = pickle.dumps('hello')\n"
        "s = socket.socket(fileno=int(sys.argv[1]))\n"
        "s.sendall(struct.pack('>IQ', len(body), 0) + body)\n"
        "s.recv(1 << 20)\n",
        RetryLater,
        "while it started",
    ),
}


@pytest.mark.parametrize("name", list(SCRIPTS))
async def test_a_worker_that_does_not_start_is_told(tier: Path, name: str) -> None:
    script, kind, text = SCRIPTS[name]
    pool = pool_of(
        tier,
        command=(sys.executable, "-c", script),
        limits=replace(LIMITS, start_deadline_s=2.0),
    )
    with pytest.raises(kind, match=text):
        await pool.start()


async def test_a_worker_of_a_program_that_was_installed_since_is_not_used(tier: Path) -> None:
    *command, mark = COMMAND
    with pytest.raises(Refused, match="was installed since: restart the node"):
        await pool_of(tier, command=(*command, f"{mark}-as-of-last-year")).start()


async def test_a_worker_whose_node_has_no_mark_yet_does_not_start(tier: Path) -> None:
    with pytest.raises(RetryLater, match="while it started"):
        await pool_of(tier, command=COMMAND[:-1]).start()


async def test_a_command_that_is_not_there_is_told(tier: Path) -> None:
    with pytest.raises(RetryLater, match="cannot be started"):
        await pool_of(tier, command=("/nonexistent/python",)).start()


async def test_a_worker_that_sends_nonsense_later_is_replaced(
    tier: Path, replica: ReplicaWriter, tmp_path: Path
) -> None:
    """The first start answers with rubbish after it was ready, the next one is a real worker."""
    mark = tmp_path / "started-once"
    script = textwrap.dedent(
        f"""
        import pathlib, runpy, socket, struct, sys
        mark = pathlib.Path({str(mark)!r})
        if mark.exists():
            from strandline.node.program_mark import program_mark
            sys.argv[1:1] = ["text", "1", program_mark()]
            runpy.run_module("strandline.node.worker_process", run_name="__main__", alter_sys=True)
        mark.touch()
        from rlm.worker.messages import Ready, frame
        s = socket.socket(fileno=int(sys.argv[1]))
        s.recv(1 << 20)  # its settings, before it may be asked for anything
        s.sendall(frame(Ready()))
        s.recv(1 << 20)
        s.sendall(struct.pack(">IQ", 3, 0) + b"xyz")
        s.recv(1 << 20)
        """
    )
    pool = pool_of(tier, command=(sys.executable, "-c", script))
    await pool.start()
    with pytest.raises(RetryLater):
        await pool.copy(big_job(replica))
    await pool.copy(big_job(replica, attempt=1))
    await pool.close()


async def test_without_any_worker_calls_wait_and_then_fail(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier, limits=replace(LIMITS, start_deadline_s=3.0))
    await pool.start()
    job = big_job(replica)
    tier.rename(tier.with_name("unmounted"))
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    while pool.pids:
        await asyncio.sleep(0.01)
    with pytest.raises(RetryLater, match="no worker process was up"):
        await pool.copy(job)
    tier.with_name("unmounted").rename(tier)
    await restarted(pool, pid)
    await pool.copy(job)
    await pool.close()


async def test_a_worker_is_replaced_once_files_can_be_opened_again(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    while pool.pids:
        await asyncio.sleep(0)
    with no_descriptors_left():
        while not (problems := pool.problems()):
            await asyncio.sleep(0.01)
    assert "Too many open files" in problems[0].text
    await restarted(pool, pid)
    await pool.copy(big_job(replica))


async def test_a_worker_is_replaced_whatever_kept_one_from_starting(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pid,) = pool.pids
    with monkeypatch.context() as patched:

        async def fails(*_: object) -> None:
            raise ValueError("nobody thought of this")

        patched.setattr(WorkerHandle, "start", fails)
        os.kill(pid, signal.SIGKILL)
        while not (problems := pool.problems()):
            await asyncio.sleep(0.01)
        assert "nobody thought of this" in problems[0].text
    await restarted(pool, pid)


async def test_a_worker_that_no_kill_ends_is_left_behind_and_replaced(
    tier: Path, replica: ReplicaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in an uninterruptible wait for a disk: it is stopped, and kills do not reach it."""
    limits = replace(LIMITS, silence_deadline_s=0.5, left_behind_max=1)
    pool = pool_of(tier, limits=limits)
    await pool.start()
    (pid,) = pool.pids
    monkeypatch.setattr(worker_handle, "END_GRACE_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(worker_handle, "_kill", lambda _: None)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(RetryLater, match=r"silent.*check whether a disk hangs.*still running"):
            await pool.copy(big_job(replica))
        while len(problems := pool.problems()) < 2:
            await asyncio.sleep(0.01)
        assert [str(pid) in each.text for each in problems] == [False, True]
        assert "1 killed worker processes have not ended" in problems[0].text
    os.kill(pid, signal.SIGKILL)
    await restarted(pool, pid)
    await pool.copy(big_job(replica, attempt=1))
    assert pool.problems() == ()
    await pool.close()


async def test_a_worker_that_hangs_at_its_start_and_no_kill_ends_is_told_and_counted(
    tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that opens a folder on a mount that hangs."""
    hanging = (sys.executable, "-c", "import time; time.sleep(600)")
    limits = replace(LIMITS, left_behind_max=1)
    pool = pool_of(tier, limits=limits)
    await pool.start()
    (pid,) = pool.pids
    monkeypatch.setattr(worker_handle, "END_GRACE_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(pool, "_command", hanging)
        patched.setattr(pool, "_limits", replace(limits, start_deadline_s=0.2))
        patched.setattr(worker_handle, "_kill", lambda _: None)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(20):
            while not any("1 killed worker processes" in each.text for each in pool.problems()):
                await asyncio.sleep(0.01)
    (left,) = pool._left_behind
    assert f"({left.pid})" in pool.problems()[1].text
    os.kill(left.pid, signal.SIGKILL)
    while left.is_left_behind:
        await asyncio.sleep(0.01)
    await pool.close()


async def test_closing_waits_for_no_worker_that_no_kill_ends(
    tier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of(tier)
    await pool.start()
    worker, pid = pool._workers[0], pool.pids[0]
    monkeypatch.setattr(worker_handle, "END_GRACE_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(worker_handle, "_kill", lambda _: None)
        os.kill(pid, signal.SIGSTOP)
        await pool.close()
    assert runs(pid)
    os.kill(pid, signal.SIGKILL)
    while worker.is_left_behind:
        await asyncio.sleep(0.01)


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    with ExitStack() as taken:
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with suppress(OSError):
            while True:
                taken.enter_context(open(os.devnull, "rb"))
        yield


async def test_a_worker_dies_with_its_supervisor(tier: Path) -> None:
    script = textwrap.dedent(
        f"""
        import asyncio, sys
        from pathlib import Path
        from tests.rlm.real_workers import pool_of
        async def main():
            pool = pool_of(Path({str(tier)!r}))
            await pool.start()
            print(pool.pids[0], flush=True)
            await asyncio.Event().wait()
        asyncio.run(main())
        """
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with supervisor:
        assert supervisor.stdout is not None
        pid = int(await asyncio.to_thread(supervisor.stdout.readline))
        supervisor.kill()
        while runs(pid):
            await asyncio.sleep(0.01)


def test_the_entry_is_for_nodes_only() -> None:
    ended = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "strandline node" in ended.stderr


async def test_what_hangs_in_the_workers_is_added_up(pool: WorkerPool) -> None:
    assert not pool.hanging_calls()
    pool._workers[0].told = Heartbeat(hanging={"/mnt/tier": 2})
    assert pool.hanging_calls() == {"/mnt/tier": 2}


async def test_threads_of_copies_have_a_lower_priority_than_the_loop_that_serves_reads(
    tier: Path, replica: ReplicaWriter
) -> None:
    pool = pool_of(tier)
    await pool.start()
    try:
        await pool.copy(big_job(replica))
        (pid,) = pool.pids
        threads = Path(f"/proc/{pid}/task").iterdir()
        found = {
            int(each.name): os.getpriority(os.PRIO_PROCESS, int(each.name)) for each in threads
        }
    finally:
        await pool.close()
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert found[pid] == mine
    assert max(found.values()) == min(19, mine + NICENESS)
