"""Bad input, at the door of the remote log manager: a clear error each time, nothing lost, nothing
half-written, and the other partitions go on.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest, NotFound, Refused, StrandlineError
from kafka_formats.log_names import segment_file_name
from kafka_formats.properties import encode_partition_metadata
from rlm.control.run_events import LostRangeRecorded
from rlm.control.why_not import WhyNot
from rlmm.segment import SegmentState
from tests.rlm.kafka_logs import KAFKA_CLUSTER, KafkaLog, new_log_dir
from tests.rlm.one_node import CLEANED_UP_AFTER_S, LIMITS, Hook, Node, new_world
from tests.rlm.planner_facts import uuid
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


@pytest.fixture
def other(orders: KafkaLog) -> KafkaLog:
    log = KafkaLog.create(orders.log_dir, "other", entries=((0, 0),))
    log.write(0, 10, end=12)
    return log


def log_path(log: KafkaLog, base: int) -> Path:
    return log.directory / segment_file_name(base, ".log")


async def read_back(node: Node, log: KafkaLog) -> dict[int, bytes]:
    """Every finished segment of the tier, by its start offset."""
    found = {}
    for row in node.metadata.list_remote_log_segments(log.partition):
        if row.state is not SegmentState.COPY_SEGMENT_FINISHED:
            continue
        pieces = [piece async for piece in node.parts.reads.open_log(row.segment_id.id)]
        found[row.start_offset] = b"".join(pieces)
    return found


# ---- log directories


def test_another_clusters_log_directory_is_refused_and_nothing_is_claimed(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.kafka_cluster_id = "the-cluster-of-this-node"
        async with world.boot() as node:
            with pytest.raises(Refused, match=KAFKA_CLUSTER):
                await node.remote_log.run_once()
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert KAFKA_CLUSTER in str(node.parts.looks.error)
            assert list(node.metadata.partitions()) == []
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize("what", ["a file", "a partition", "nothing"])
def test_a_path_that_is_no_log_directory_is_refused_with_what_to_give(
    tmp_path: Path, orders: KafkaLog, what: str
) -> None:
    paths = {
        "a file": orders.log_dir / "meta.properties",
        "a partition": orders.directory,
        "nothing": tmp_path / "nothing",
    }

    async def main() -> None:
        async with new_world(tmp_path, (paths[what],)).boot() as node:
            with pytest.raises(InvalidRequest, match=r"log\.dirs"):
                await node.remote_log.run_once()
            assert list(node.metadata.partitions()) == []

    run_virtually(main)


@pytest.mark.parametrize(
    "name", ["..-0", ".-0", "a b-0", "x\ny-0", "caf\u00e9-0", "\udcff-0", "t" * 250 + "-0", "-0"]
)
def test_a_hostile_topic_name_is_never_a_partition_nor_a_key(
    tmp_path: Path, orders: KafkaLog, name: str
) -> None:
    shutil.copytree(orders.directory, orders.log_dir / name)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            report = await node.remote_log.run_once()
            assert report.complete
            assert list(node.metadata.partitions()) == [orders.partition]
            await node.assert_quiesced()

    run_virtually(main)


def test_the_same_partition_in_two_directories_is_copied_from_neither(
    tmp_path: Path, orders: KafkaLog, other: KafkaLog
) -> None:
    second = new_log_dir(tmp_path / "second disk")

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir, second)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            shutil.copytree(orders.directory, second / "orders-0")
            orders.write(20, 30, end=31)
            other.write(10, 20, end=21)
            await asyncio.sleep(60)
            assert len(node.finished(orders.partition)) == 2
            assert len(node.finished(other.partition)) == 2
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert str(second) in page.why_not_text
            shutil.rmtree(second / "orders-0")
            await asyncio.sleep(60)
            assert len(node.finished(orders.partition)) == 3
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


# ---- segments


def test_a_file_that_may_not_be_read_keeps_its_partition_back_and_no_other(
    tmp_path: Path, orders: KafkaLog, other: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    forbidden = {log_path(orders, 10)}

    def guarded(path: Path, flags: int, *more: int) -> int:
        if path in forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *more)

    async def main() -> None:
        monkeypatch.setattr(os, "open", guarded)
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert node.finished(orders.partition) == [(0, 9)]
            assert node.finished(other.partition) == [(0, 9)]
            page = node.remote_log.status(orders.partition)
            assert page.last_error is not None
            assert str(log_path(orders, 10)) in page.last_error.text
            assert "let the node's user read" in page.last_error.text
            forbidden.clear()
            await asyncio.sleep(CLEANED_UP_AFTER_S + LIMITS.backoff_max_s)
            assert len(node.finished(orders.partition)) == 2
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


@dataclass
class AtStep:
    """Does something once, at a step of a copy."""

    step: str
    act: Callable[[], object]
    done: list[object] = field(default_factory=list)

    async def __call__(self, name: str) -> None:
        if name == self.step and not self.done:
            self.done.append(self.act())


STEPS_OF_A_COPY = ("before COPY_SEGMENT_STARTED", "after COPY_SEGMENT_STARTED", "before put .log")


@pytest.mark.parametrize("step", [*STEPS_OF_A_COPY, "before put .rsm-manifest"])
def test_a_segment_truncated_while_it_is_copied_is_not_finished(
    tmp_path: Path, orders: KafkaLog, other: KafkaLog, step: str
) -> None:
    whole = {base: orders.log_bytes(base) for base in (0, 10)}
    path = log_path(orders, 0)

    async def main() -> None:
        truncate = AtStep(step, lambda: os.truncate(path, len(whole[0]) // 2 + 5))
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, hook=truncate) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert truncate.done
            if step != "before put .rsm-manifest":
                # Cut off before the source's last look: no byte of it counts.
                assert node.finished(orders.partition) == []
                page = node.remote_log.status(orders.partition)
                assert page.last_error is not None
                assert path.name in page.last_error.text
            assert node.finished(other.partition) == [(0, 9)]
            path.write_bytes(whole[0])
            await asyncio.sleep(CLEANED_UP_AFTER_S + LIMITS.corrupt_retry_s)
            assert await read_back(node, orders) == whole
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize("step", [*STEPS_OF_A_COPY, "before put .rsm-manifest"])
def test_a_segment_that_vanishes_is_copied_from_what_was_open_or_told_as_lost(
    tmp_path: Path, orders: KafkaLog, other: KafkaLog, step: str
) -> None:
    whole = {base: orders.log_bytes(base) for base in (0, 10)}

    async def main() -> None:
        vanish = AtStep(step, lambda: orders.delete_segment(0))
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, hook=vanish) as node:
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert vanish.done
            found = await read_back(node, orders)
            lost = [each for each in node.events if isinstance(each, LostRangeRecorded)]
            assert found[10] == whole[10]
            if 0 in found:
                assert (found[0], lost) == (whole[0], [])
            else:
                assert [(each.start, each.end) for each in lost] == [(0, 9)]
            assert node.finished(other.partition) == [(0, 9)]
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize("step", [*STEPS_OF_A_COPY, "before put .rsm-manifest"])
def test_a_topic_made_anew_under_its_name_is_never_mixed_with_the_old_one(
    tmp_path: Path, orders: KafkaLog, step: str
) -> None:
    old = {base: orders.log_bytes(base) for base in (0, 10)}
    anew = replace(orders, partition=replace(orders.partition, topic_id=uuid(99)))

    def make_anew() -> None:
        orders.directory.rename(orders.log_dir / f"orders-0.{'a' * 32}-delete")
        anew.directory.mkdir()
        metadata = encode_partition_metadata(anew.partition.topic_id)
        (anew.directory / "partition.metadata").write_bytes(metadata)
        anew.set_epochs((0, 0), (1, 5))
        anew.write(0, end=5)
        anew.write(5, 25, end=30, epoch=1)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        recreate = AtStep(step, make_anew)
        async with world.boot(data_plane=True, hook=recreate) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert recreate.done
            for base, data in (await read_back(node, orders)).items():
                assert data == old[base]
            assert node.remote_log.status(orders.partition).why_not_copying is WhyNot.NO_LOCAL_LOG
            assert node.finished(anew.partition) == [(0, 4), (5, 24)]
            assert await read_back(node, anew) == {0: anew.log_bytes(0), 5: anew.log_bytes(5)}
            await node.remote_log.close()

    run_virtually(main)


def test_a_corrupt_batch_blocks_its_partition_with_file_and_position_and_no_other(
    tmp_path: Path, orders: KafkaLog, other: KafkaLog
) -> None:
    whole = orders.log_bytes(10)
    orders.damage(10)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert node.finished(orders.partition) == [(0, 9)]
            assert node.finished(other.partition) == [(0, 9)]
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.BLOCKED
            assert page.blocked is not None
            assert log_path(orders, 10).name in page.blocked
            assert "offsets 15 to 19" in page.blocked
            # Nothing of it is left half-written while the partition is blocked.
            await node.assert_quiesced()
            log_path(orders, 10).write_bytes(whole)
            await asyncio.sleep(LIMITS.corrupt_retry_s + CLEANED_UP_AFTER_S)
            assert (await read_back(node, orders))[10] == whole
            assert node.remote_log.status(orders.partition).blocked is None
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


# ---- stores


def missing() -> StrandlineError:
    return NotFound("there is no bucket 'tier': create it, or correct [stores.main] bucket")


def read_only() -> StrandlineError:
    return Refused("the bucket 'tier' takes no writes from these credentials")


def wrong_credentials() -> StrandlineError:
    return Refused("the store does not know these credentials: correct credentials_file")


def bad_key() -> StrandlineError:
    return InvalidRequest("the store refuses this key", field="key")


STORE_ERRORS = [missing, read_only, wrong_credentials, bad_key]


def every(steps: tuple[str, ...], error: Callable[[], StrandlineError]) -> Hook:
    async def hook(name: str) -> None:
        if name.startswith(steps):
            raise error()

    return hook


@pytest.mark.parametrize("error", STORE_ERRORS)
def test_a_store_that_cannot_be_used_ends_the_start_with_its_own_words(
    tmp_path: Path, orders: KafkaLog, error: Callable[[], StrandlineError]
) -> None:
    async def main() -> None:
        hook = every(("before put", "before start", "before complete"), error)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            for attempt in (node.remote_log.start, node.remote_log.run_once):
                with pytest.raises(type(error()), match=str(error())[:20]):
                    await attempt()
            await node.remote_log.close()
            assert list(node.metadata.partitions()) == []
            assert await node.keys() == set()

    run_virtually(main)


@pytest.mark.parametrize("error", STORE_ERRORS)
def test_a_store_that_becomes_unusable_is_told_and_copying_goes_on_when_it_is_back(
    tmp_path: Path, orders: KafkaLog, error: Callable[[], StrandlineError]
) -> None:
    refusing = True

    async def hook(name: str) -> None:
        if refusing and name.startswith(("before put .", "before start", "before complete")):
            raise error()

    async def main() -> None:
        nonlocal refusing
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(120)
            assert node.finished(orders.partition) == []
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.BACK_OFF
            assert str(error()) in page.why_not_text
            assert page.last_error is not None
            assert page.last_error.kind == error().kind
            refusing = False
            await asyncio.sleep(CLEANED_UP_AFTER_S + LIMITS.backoff_max_s)
            assert sorted(await read_back(node, orders)) == [0, 10]
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize("error", [missing, wrong_credentials])
def test_a_marker_that_cannot_be_read_is_no_permission_to_write_one(
    tmp_path: Path, orders: KafkaLog, error: Callable[[], StrandlineError]
) -> None:
    async def main() -> None:
        hook = every(("before get marker", "before put marker"), error)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            with pytest.raises(type(error())):
                await node.remote_log.start()
            assert await node.keys() == set()

    run_virtually(main)
