"""What a node holds is found again after a disaster, and what nobody uses is told."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_formats.errors import RetryLater
from rlm.control.run_events import OnEvent, ignore_event
from rlm.control.why_not import WhyNot
from rlm.copy.hold import Hold, HoldLimits
from rlm.leadership.leadership import Leads, LocalLogStart
from rlm.local_log.hold_beside import DIRECTORY_NAME
from rlmm.manager.manager import RemoteLogMetadataManager
from strandline.node.holding import open_hold
from strandline.settings.settings import HoldSettings, KafkaSettings, Settings
from tests.rlm.after_disaster import ANEW, after_the_disaster, record_reconciled
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    ROOM,
    Outage,
    four_segments,
    holding,
    lost,
    retention,
)
from tests.rlm.kafka_logs import KAFKA_CLUSTER, KafkaLog, new_log_dir
from tests.rlm.one_node import World, new_world
from tests.rlm.virtual_time import run_virtually

CLUSTER = "strandline-cluster"
IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from rlm.local_log.hold_owner import become_owner
become_owner(Path(sys.argv[1]), sys.argv[2])
print("owns it", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Sealed segments 0-9 and 10-19."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    (tmp_path / "hold").mkdir()
    return log


def opened(
    path: Path | None,
    log: KafkaLog,
    cluster_id: str,
    running: ExitStack,
    metadata: Any = None,
    told: OnEvent = ignore_event,
) -> Hold:
    settings = Settings(
        hold=HoldSettings(
            dirs=None if path is None else [path],
            bytes_max=ROOM.bytes_max,
            free_bytes_min=ROOM.free_bytes_min,
        ),
        kafka=KafkaSettings(log_dirs=[log.log_dir], broker="127.0.0.1:9092"),
    )
    directory: Any = SimpleNamespace(
        cluster_id=cluster_id, kafka_cluster_id=KAFKA_CLUSTER, node_id=1
    )
    hold = open_hold(settings, directory, metadata, told, running)
    assert hold is not None
    return hold


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Lets go of all that a process of a node owns."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def as_shipped(
    tmp_path: Path, orders: KafkaLog, running: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worlds open their hold as a node does, in one directory; one process runs at a time."""

    def hold(world: World, manager: RemoteLogMetadataManager, _: HoldLimits, told: OnEvent) -> Hold:
        running.close()
        return opened(tmp_path / "hold", orders, world.cluster_id, running, manager, told)

    monkeypatch.setattr(World, "_hold", hold)


@contextmanager
def another_process(path: Path, cluster_id: str) -> Iterator[subprocess.Popen[str]]:
    """A process of that cluster's node which owns the hold directory."""
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path), cluster_id]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "owns it\n"
        yield process
        process.kill()


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize("version", ["this", "earlier"])
def test_what_was_held_before_a_disaster_is_copied_after_it(
    tmp_path: Path, orders: KafkaLog, version: str
) -> None:
    broker = FakeBroker({("orders", 0): Leads(0, 25)})

    async def hook(step: str) -> None:
        if step == "before COPY_SEGMENT_STARTED":
            raise RetryLater("no quorum")

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hold=ROOM, hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            snapshot = await node.metadata.take_snapshot()
            retention(orders, 0, 10, start=20)
            broker.local_start = LocalLogStart(20, 0)
        if version == "earlier":
            (path,) = (tmp_path / "hold").glob("[!.]*")
            path.rename(path.with_name(f"{CLUSTER}-1"))
            async with world.boot(data_plane=True, broker=broker, hold=ROOM, hook=hook) as node:
                await node.remote_log.start()
                await asyncio.sleep(A_FEW_SCANS_S)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, broker=broker, hold=ROOM, directory_id=ANEW) as node:
            await record_reconciled(node)
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.lost_ranges == ()
            assert not [*(tmp_path / "hold").glob("[!.]*/**/*.log")]

    run_virtually(main)


def test_a_directory_of_nobody_known_is_told_and_stays(
    tmp_path: Path, orders: KafkaLog, running: ExitStack
) -> None:
    unit = "orders-0/AQEBAQEBAQEBAW9yZGVycw/00000000000000000000-00000000000000000010-9-1"
    for name in ("stranger-1", f"{CLUSTER}-1"):
        (tmp_path / "hold" / name / unit).mkdir(parents=True)
    hold = opened(tmp_path / "hold", orders, CLUSTER, running)
    (problem,) = hold.problems()
    assert problem.text.startswith(f"{tmp_path / 'hold' / 'stranger-1'} holds segments")
    assert problem.name == str(tmp_path / "hold" / "stranger-1")
    assert f"rename the directory to {CLUSTER}-1" in problem.text
    left = {f"{KAFKA_CLUSTER}-1", "stranger-1", f".{KAFKA_CLUSTER}-1.lock"}
    assert {each.name for each in (tmp_path / "hold").iterdir()} == left


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("kind", [".", ".active"])
def test_what_a_node_of_another_id_left_is_told_unless_that_runs(
    tmp_path: Path, orders: KafkaLog, running: ExitStack, runs: bool, kind: str
) -> None:
    """Also links to active segments alone."""
    name = f"{0:020d}-17" if kind == ".active" else f"{0:020d}-{10:020d}-9-1"
    left = tmp_path / "hold" / kind / f"{KAFKA_CLUSTER}-7"
    (left / "orders-0" / str(orders.partition.topic_id) / name).mkdir(parents=True)
    if runs:
        lock = tmp_path / "hold" / f"{KAFKA_CLUSTER}-7"
        running.enter_context(another_process(lock, CLUSTER))
    problems = opened(tmp_path / "hold", orders, CLUSTER, running).problems()
    assert [each.name for each in problems] == ([] if runs else [str(left)])
    assert all("node 7 of this Kafka cluster" in each.text for each in problems)


def test_links_of_a_directory_that_is_given_the_name_to_take_over_are_taken_over(
    tmp_path: Path, orders: KafkaLog, running: ExitStack
) -> None:
    path = Path("orders-0") / str(orders.partition.topic_id) / f"{0:020d}-17"
    links = tmp_path / "hold" / ".active"
    (links / f"{CLUSTER}-1" / path).mkdir(parents=True)
    assert opened(tmp_path / "hold", orders, CLUSTER, running).problems() == ()
    assert [each.name for each in links.iterdir()] == [f"{KAFKA_CLUSTER}-1"]


def test_beside_a_running_node_of_another_cluster_it_holds_nothing_and_copies(
    tmp_path: Path,
    orders: KafkaLog,
    running: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = tmp_path / "hold" / f"{KAFKA_CLUSTER}-1"

    def hold(world: World, manager: RemoteLogMetadataManager, _: HoldLimits, told: OnEvent) -> Hold:
        return opened(tmp_path / "hold", orders, world.cluster_id, running, manager, told)

    monkeypatch.setattr(World, "_hold", hold)
    unit = own / "orders-0" / str(orders.partition.topic_id) / f"{0:020d}-{10:020d}-1-1"

    async def main() -> None:
        unit.mkdir(parents=True)
        world, broker = (
            new_world(tmp_path, (orders.log_dir,)),
            FakeBroker({("orders", 0): Leads(0, 25)}),
        )
        async with world.boot(data_plane=True, broker=broker, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            (problem,) = node.hold.problems() if node.hold else ()
            assert problem.text.startswith(f"{own} is in use by a node of the Strandline cluster b")
            assert "a directory of its own in hold.dirs" in problem.text
            assert str(own) not in caplog.text  # the report logs each problem
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert unit.is_dir()
            assert len([*own.rglob("*")]) == 3

    with another_process(own, "b"):
        run_virtually(main)


def test_a_killed_nodes_directory_is_taken_over_and_that_is_logged(
    tmp_path: Path, orders: KafkaLog, running: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "hold" / f"{KAFKA_CLUSTER}-1"
    with another_process(own, "b") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert opened(tmp_path / "hold", orders, CLUSTER, running).problems() == ()
    (line,) = caplog.messages
    assert line.startswith(f"{own} belonged to the Strandline cluster b")
    running.close()
    assert opened(tmp_path / "hold", orders, CLUSTER, running).problems() == ()
    assert len(caplog.messages) == 1


def test_what_is_held_beside_a_log_directory_that_came_after_the_start_is_no_gap(
    tmp_path: Path, running: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, away, outage = tmp_path / "disk", tmp_path / "away", Outage()
    disk.mkdir()
    orders = four_segments(disk)

    def hold(world: World, manager: RemoteLogMetadataManager, _: HoldLimits, told: OnEvent) -> Hold:
        running.close()
        return opened(None, orders, world.cluster_id, running, manager, told)

    monkeypatch.setattr(World, "_hold", hold)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage):
            retention(orders, 0, 10, start=20)
        outage.lasts = False
        disk.rename(away)
        disk.mkdir()
        async with holding(world, outage) as node:
            disk.rmdir()
            away.rename(disk)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            (status,) = node.remote_log.statuses()
            assert status.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            (problem,) = node.hold.problems() if node.hold else ()
            assert f"{orders.log_dir} was not there when the node started" in problem.text
            assert "start the node again" in problem.text
        async with holding(world, outage) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == []
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_what_is_held_where_the_node_may_not_look_is_told_and_copied_once_it_may(
    tmp_path: Path, running: ExitStack, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """By another user than before, or on a disk that fails."""
    outage = Outage()
    orders = four_segments(tmp_path)
    beside = str(orders.log_dir.parent / DIRECTORY_NAME)

    def hold(world: World, manager: RemoteLogMetadataManager, _: HoldLimits, told: OnEvent) -> Hold:
        running.close()
        return opened(None, orders, world.cluster_id, running, manager, told)

    def fails_below(function: Callable[..., Any]) -> Callable[..., Any]:
        def fail_or(path: Any, *more: Any, **named: Any) -> Any:
            if str(path).startswith(f"{beside}/"):
                raise OSError(code, os.strerror(code), str(path))
            return function(path, *more, **named)

        return fail_or

    monkeypatch.setattr(World, "_hold", hold)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage):
            retention(orders, 0, 10, start=20)
        outage.lasts = False
        with monkeypatch.context() as failing:
            for name in ("open", "stat", "mkdir", "listdir", "link"):
                failing.setattr(os, name, fails_below(getattr(os, name)))
            async with holding(world, outage) as node:
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert node.finished(orders.partition) == [(20, 29)], "nobody holds it meanwhile"
                texts = [each.text for each in node.hold.problems()] if node.hold else []
                assert any(f"the segments held in {beside}/" in text for text in texts), texts
        async with holding(world, outage) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


@pytest.mark.parametrize("held_before", [True, False])
def test_a_full_disk_at_the_start_keeps_no_node_from_starting_nor_from_holding_once_there_is_room(
    orders: KafkaLog, running: ExitStack, monkeypatch: pytest.MonkeyPatch, held_before: bool
) -> None:
    def is_full(path: Path | str, _: int = 0o777) -> None:
        if not os.path.isdir(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        raise FileExistsError(path)

    beside = orders.log_dir.parent / DIRECTORY_NAME
    beside.mkdir()
    if held_before:
        opened(None, orders, CLUSTER, running)
        running.close()
    monkeypatch.setattr(os, "mkdir", is_full)
    hold = opened(None, orders, CLUSTER, running)
    asyncio.run(hold.begin())
    told = [(each.name, each.text) for each in hold.problems()]
    if held_before:
        assert told == []
    else:
        ((name, text),) = told
        assert name == str(orders.log_dir)
        assert "No space left on device" in text
