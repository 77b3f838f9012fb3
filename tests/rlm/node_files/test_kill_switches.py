"""The node's kill switches: they hold at once, survive restarts, and fail towards a pause."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlm.control.audit import AuditLine
from rlm.control.node_problem import ProblemArea
from rlm.node_files import kill_switches
from rlm.node_files.kill_switches import FILE_NAME, KillSwitches, Pause, Pauses, Switch
from rlmm.log.disk import Disk, replace_file

NOW_MS = 1_700_000_000_000


def switches_at(path: Path, lines: list[AuditLine] | None = None) -> KillSwitches:
    told = [] if lines is None else lines
    return KillSwitches(path / FILE_NAME, now_ms=lambda: NOW_MS, audit=told.append)


async def test_a_pause_survives_a_restart_with_who_and_why(tmp_path: Path) -> None:
    before = switches_at(tmp_path)
    assert before.pause_of(Switch.DELETING) is None
    await before.pause(Switch.DELETING, by="ann", why="a wrong policy")
    after = switches_at(tmp_path)
    assert after.pause_of(Switch.DELETING) == Pause(NOW_MS, "ann", "a wrong policy")
    assert after.pause_of(Switch.COPYING) is None
    (problem,) = after.problems()
    assert (problem.area, problem.name) == (ProblemArea.PAUSED, "deleting")
    assert "by ann (a wrong policy); `strandline resume deleting`" in problem.text


async def test_a_resume_survives_a_restart_and_takes_only_its_own_switch(tmp_path: Path) -> None:
    before = switches_at(tmp_path)
    await before.pause(Switch.COPYING, by="ann")
    await before.pause(Switch.DELETING, by="ann")
    await before.resume(Switch.COPYING, by="bob")
    after = switches_at(tmp_path)
    assert [switch for switch in Switch if after.pause_of(switch)] == [Switch.DELETING]


async def test_a_pause_said_twice_keeps_the_first_and_tells_it_once(tmp_path: Path) -> None:
    lines: list[AuditLine] = []
    switches = switches_at(tmp_path, lines)
    await switches.pause(Switch.COPYING, by="ann", why="first")
    await switches.pause(Switch.COPYING, by="bob", why="second")
    await switches.resume(Switch.COPYING, by="bob")
    await switches.resume(Switch.COPYING, by="bob")
    assert [(line.action, line.by, line.why) for line in lines] == [
        ("paused", "ann", "copying on this node: first"),
        ("resumed", "bob", "copying on this node"),
    ]


async def test_a_disk_that_takes_nothing_leaves_it_paused_and_says_so(tmp_path: Path) -> None:
    switches = switches_at(tmp_path / "absent")
    with pytest.raises(RetryLater, match="is paused until this node ends"):
        await switches.pause(Switch.DELETING, by="ann")
    assert switches.pause_of(Switch.DELETING) is not None
    with pytest.raises(RetryLater, match="stays paused"):
        await switches.resume(Switch.DELETING, by="ann")
    assert switches.pause_of(Switch.DELETING) is not None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"flying": null}', b'{"copying": {"since_ms": -1}}', b"[" * 10_000]
)
async def test_a_file_that_cannot_be_read_pauses_both_until_somebody_resumes(
    tmp_path: Path, data: bytes
) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    switches = switches_at(tmp_path)
    assert len(switches.problems()) == 2
    for switch in Switch:
        assert "can't be read" in str(switches.text(switch))
        await switches.resume(switch, by="ann")
    assert switches_at(tmp_path).problems() == ()


async def test_a_pause_said_while_a_resume_is_written_down_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever said it was told that nothing begins from there on."""
    switches = switches_at(tmp_path)
    await switches.pause(Switch.DELETING, by="ann")
    store, writing, go_on = switches._store, asyncio.Event(), asyncio.Event()

    async def slowly(pauses: Pauses) -> None:
        writing.set()
        await go_on.wait()
        await store(pauses)

    monkeypatch.setattr(switches, "_store", slowly)
    resuming = asyncio.create_task(switches.resume(Switch.DELETING, by="bob"))
    await writing.wait()
    pausing = asyncio.create_task(switches.pause(Switch.DELETING, by="eve"))
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(RetryLater, match="paused again"):
        await resuming
    await pausing
    assert switches.pause_of(Switch.DELETING) is not None
    assert switches_at(tmp_path).pause_of(Switch.DELETING) is not None


class SlowDisk:
    """Writes of the file wait here, in their thread, until `go_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(kill_switches, "replace_file", self._slowly)

    def _slowly(self, disk: Disk, path: Path, data: bytes) -> None:
        if not self.begun.is_set():
            self.begun.set()
            assert self.go_on.wait(10)
        replace_file(disk, path, data)

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 10)


async def test_a_resume_given_up_on_a_slow_disk_does_not_undo_a_later_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request ends at its deadline; the thread that writes for it does not."""
    switches = switches_at(tmp_path)
    await switches.pause(Switch.DELETING, by="ann")
    slow = SlowDisk(monkeypatch)
    resuming = asyncio.create_task(switches.resume(Switch.DELETING, by="bob"))
    await slow.has_begun()
    resuming.cancel()
    await asyncio.gather(resuming, return_exceptions=True)
    pausing = asyncio.create_task(switches.pause(Switch.DELETING, by="eve"))
    await asyncio.wait({pausing}, timeout=0.2)
    slow.go_on.set()
    await pausing
    await asyncio.get_running_loop().shutdown_default_executor()
    assert switches.pause_of(Switch.DELETING) is not None
    assert switches_at(tmp_path).pause_of(Switch.DELETING) is not None


async def test_a_resume_that_waits_for_its_turn_does_not_undo_a_later_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the pause that its caller saw, also if that gave up meanwhile."""
    switches = switches_at(tmp_path)
    await switches.pause(Switch.DELETING, by="ann")
    slow = SlowDisk(monkeypatch)
    other = asyncio.create_task(switches.pause(Switch.COPYING, by="ann"))
    await slow.has_begun()
    resuming = asyncio.create_task(switches.resume(Switch.DELETING, by="bob"))
    given_up = asyncio.create_task(switches.resume(Switch.DELETING, by="bob"))
    await asyncio.sleep(0)
    given_up.cancel()
    pausing = asyncio.create_task(switches.pause(Switch.DELETING, by="eve"))
    await asyncio.sleep(0)
    slow.go_on.set()
    with pytest.raises(RetryLater, match="paused again"):
        await resuming
    await asyncio.gather(other, pausing)
    assert switches.pause_of(Switch.DELETING) is not None
    assert switches_at(tmp_path).pause_of(Switch.DELETING) is not None
    assert "went on without its caller failed: deleting stays paused" in caplog.text


async def test_a_pause_given_up_on_a_slow_disk_is_stored_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in force in this process, and shown, so a restart must not end it."""
    switches = switches_at(tmp_path)
    slow = SlowDisk(monkeypatch)
    first = asyncio.create_task(switches.pause(Switch.COPYING, by="ann"))
    await slow.has_begun()
    second = asyncio.create_task(switches.pause(Switch.DELETING, by="ann"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    slow.go_on.set()
    await first
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    assert switches.pause_of(Switch.DELETING) is not None
    assert switches_at(tmp_path).pause_of(Switch.DELETING) is not None
