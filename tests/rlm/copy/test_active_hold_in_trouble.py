"""Links to active segments while nodes are down, disks are full, and files have other links."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import rlm.copy.active_hold
from kafka_formats.log_names import segment_file_name
from rlm.control.run_events import HoldReleased
from rlm.control.why_not import WhyNot
from rlm.copy.hold import HoldLimits
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from rlm.local_log.hold_directory import HoldDirectory
from tests.rlm.broker_files import ReplicaWriter, write_checkpoint
from tests.rlm.copy.test_active_hold import links, quiet_log, retention_takes_all
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    ROOM,
    holding,
    lost,
    units,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

NO_ROOM = HoldLimits(bytes_max=1, free_bytes_min=1)


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    return quiet_log(tmp_path)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker({("orders", 0): Leads(0, 35)})


def released(node: Node) -> list[str]:
    return [each.why for each in node.events if isinstance(each, HoldReleased)]


def test_a_transaction_that_was_aborted_while_the_node_was_down_is_copied(tmp_path: Path) -> None:
    """The broker made the segment's `.txnindex` after the link, and has removed it."""
    log_dir = new_log_dir(tmp_path / "kafka")
    writer = ReplicaWriter(log_dir)
    writer.append(5)
    writer.flush()
    write_checkpoint(log_dir, "replication-offset-checkpoint", {("orders", 0): 5})
    broker = FakeBroker({("orders", 0): Leads(0, 5)})

    async def main() -> None:
        world = new_world(tmp_path, (log_dir,))
        async with holding(world, broker=broker):
            pass
        writer.append(5, producer_id=7, transactional=True)
        writer.end_transaction(7, commit=False)
        writer.append(4)
        writer.flush()
        end = writer.next_offset
        write_checkpoint(log_dir, "replication-offset-checkpoint", {("orders", 0): end})
        writer.roll()
        writer.cut_head(writer.base_offset)
        broker.words["orders", 0] = Leads(0, end)
        broker.local_start = LocalLogStart(end, 0)
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(writer.partition) == [(0, end - 1)]
            (row,) = node.metadata.list_remote_log_segments(writer.partition)
            assert not row.txn_index_empty

    run_virtually(main)


@pytest.mark.parametrize("is_preallocated", [False, True])
def test_what_a_replica_that_moved_away_leaves_counts_against_the_budget(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, is_preallocated: bool
) -> None:
    """Also beside a link of a second Strandline cluster, and of a file with room behind it."""

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker, hold=NO_ROOM) as node:
            path = log.directory / segment_file_name(0, ".log")
            if is_preallocated:
                os.truncate(path, path.stat().st_size + 100_000)
            else:
                os.link(path, tmp_path / "of-another-cluster")
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == ["0"]
            shutil.rmtree(log.directory)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (links(tmp_path), units(tmp_path)) == ([], [])
            assert released(node) == ["bytes_max"]

    run_virtually(main)


@pytest.mark.parametrize("hold", [ROOM, NO_ROOM])
def test_what_may_be_uncommitted_of_a_replica_that_moved_away_counts_against_the_budget(
    tmp_path: Path, log: KafkaLog, hold: HoldLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows it as long as the replica is away, and its batches are read once."""
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): NotLeading()})
    read = []
    real = HoldDirectory.hold_left

    def hold_left(*args: Any, may_cut: bool) -> Any:
        read.append(args)
        return real(*args, may_cut=may_cut)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker, hold=hold) as node:
            monkeypatch.setattr(HoldDirectory, "hold_left", hold_left)
            shutil.rmtree(log.directory)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert len(read) == 1 or hold is NO_ROOM
            left, told = (["0"], []) if hold is ROOM else ([], ["bytes_max"])
            assert (links(tmp_path), units(tmp_path), released(node)) == (left, [], told)
            assert node.hold is not None
            assert (node.hold.usage().alone_bytes > 0) is (hold is ROOM)

    run_virtually(main)


def test_a_replica_that_was_away_and_is_back_keeps_nothing_waiting(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker
) -> None:
    """Its directory had another name for a while, and nothing showed what was committed."""
    log.set_high_watermark(30)
    broker.words["orders", 0] = Leads(0, 30)
    aside = log.directory.with_name("orders-0.aside")

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            for source, target in ((log.directory, aside), (aside, log.directory)):
                source.rename(target)
                await asyncio.sleep(A_FEW_SCANS_S)
            assert node.remote_log.statuses()[0].why_not_copying is WhyNot.NO_SEALED_SEGMENT

    run_virtually(main)


def test_a_node_that_is_killed_between_unit_and_link_holds_the_file_once(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        raise OSError(errno.EIO, "killed here", str(path))

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        with monkeypatch.context() as amid:
            async with holding(world, broker=broker) as node:
                amid.setattr(rlm.copy.active_hold, "remove_links", killed)
                shutil.rmtree(log.directory)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert (links(tmp_path), units(tmp_path)) == (["0"], ["0"])
        async with holding(world, broker=broker, hold=NO_ROOM) as node:
            assert (links(tmp_path), units(tmp_path)) == ([], [])
            assert released(node) == ["bytes_max"]

    run_virtually(main)


@pytest.mark.parametrize("fails", ["the unit", "the look"])
def test_records_whose_unit_could_not_be_made_yet_are_not_recorded_as_lost(
    tmp_path: Path,
    log: KafkaLog,
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            with monkeypatch.context() as amid:
                if fails == "the unit":
                    amid.setattr(HoldDirectory, "hold_left", failing)
                else:
                    amid.setattr(rlm.copy.active_hold, "own_segment", failing)
                retention_takes_all(log)
                broker.local_start = LocalLogStart(35, 0)
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                (status,) = node.remote_log.statuses()
                assert status.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
                assert lost(node.events) == []
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(log.partition) == [(0, 34)]
            assert (lost(node.events), links(tmp_path)) == ([], [])

    run_virtually(main)


def test_on_a_full_disk_a_file_that_left_its_log_is_let_go_and_counts_as_missed(
    tmp_path: Path, log: KafkaLog, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            monkeypatch.setattr(HoldDirectory, "hold_left", full)
            retention_takes_all(log)
            broker.local_start = LocalLogStart(35, 0)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (links(tmp_path), released(node)) == ([], ["free_bytes_min"])
            missed = [each for each in node.events if isinstance(each, HoldReleased)]
            assert [(each.start, each.end, each.missed) for each in missed] == [(0, 34, True)]

    run_virtually(main)


@pytest.mark.parametrize("fails_at", [".log", ".index"])
@pytest.mark.parametrize("why", ["free_bytes_min", "diverged"])
def test_what_is_let_go_is_told_once(
    tmp_path: Path,
    log: KafkaLog,
    broker: FakeBroker,
    monkeypatch: pytest.MonkeyPatch,
    fails_at: str,
    why: str,
) -> None:
    """On a full disk, or if nothing shows that it was committed; also if a file of the link cannot
    be removed for a while.
    """
    real = Path.unlink

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.suffix == fails_at and ".active" in self.parts:
            raise OSError(errno.EIO, "fails for a while", str(self))
        real(self, missing_ok)

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            with monkeypatch.context() as amid:
                if why == "diverged":
                    log.set_high_watermark(30)
                    broker.words["orders", 0] = NotLeading()
                    await asyncio.sleep(A_FEW_SCANS_S)
                else:
                    amid.setattr(HoldDirectory, "hold_left", full)
                retention_takes_all(log, epoch=5 if why == "diverged" else 0)
                broker.local_start = LocalLogStart(35, 0)
                with monkeypatch.context() as failing:
                    failing.setattr(Path, "unlink", unlink)
                    await asyncio.sleep(A_FEW_SCANS_S)
                await asyncio.sleep(A_FEW_SCANS_S)
            assert (links(tmp_path), released(node)) == ([], [why])

    run_virtually(main)


def test_partitions_whose_links_fail_keep_no_other_one_from_its_link(
    tmp_path: Path, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a pass makes a few links only."""
    quiet = KafkaLog.create(log.log_dir, "silent", entries=((0, 0),))
    quiet.write(0, end=35)
    real = os.link

    def link(source: Path, target: Path) -> None:
        if ".active" in Path(target).parts and Path(source).parent == log.directory:
            raise OSError(errno.EPERM, "not the owner", str(source))
        real(source, target)

    async def main() -> None:
        monkeypatch.setattr(rlm.copy.active_hold, "SYNCS_A_PASS", 1)
        monkeypatch.setattr(os, "link", link)
        async with holding(new_world(tmp_path, (log.log_dir,))):
            (path,) = (tmp_path / "hold").rglob(".active/**/*.log")
            assert os.path.samefile(path, quiet.directory / path.name)

    run_virtually(main)
