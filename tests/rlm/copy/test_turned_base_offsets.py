"""Kafka's CRC leaves out a batch's base offset: one with a turned bit stands in for no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.batch_scan import scan
from rlm.control.why_not import WhyNot
from rlm.data_plane.read_request import RecordsRequest
from tests.rlm.copy.test_mending import outcome, rewrite
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    Outage,
    four_segments,
    holding,
    retention,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.replicas import Cluster, cluster, remove
from tests.rlm.virtual_time import run_virtually

ALL = range(40)


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Segments at 0, 10, 20, 30, the active one at 40."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, 40, end=45)
    return log


def claims(batch: bytes, offset: int) -> bytes:
    """The batch with another base offset, as a turned bit leaves it."""
    return offset.to_bytes(8, "big") + batch[8:]


@pytest.mark.parametrize("answer_bytes", [400, 100_000])
@pytest.mark.parametrize(("offset", "turned_to"), [(18, 19), (15, 7), (15, 15 + 2**20), (10, 26)])
def test_a_replicas_batch_with_another_base_offset_is_neither_taken_nor_are_those_behind_it_lost(
    tmp_path: Path, log: KafkaLog, offset: int, turned_to: int, answer_bytes: int
) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=ALL)
    batch = brokers.batches[offset]
    brokers.damage = lambda _, data: data.replace(batch, claims(batch, turned_to))
    brokers.answer_bytes = answer_bytes
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.why_not) == ([], (), WhyNot.BLOCKED)
    missing = f"no good batch of offsets {offset} to {offset}"
    assert f"{missing}: broker 1: " in seen.text
    assert f"broker 2: its log goes from 0 to 39, but it sent {missing}" in seen.text


def test_it_comes_from_the_replica_that_has_it_right(tmp_path: Path, log: KafkaLog) -> None:
    brokers = cluster(log, b1=[*range(10), *range(20, 40)], b2=ALL, b3=ALL)
    batch = brokers.batches[18]
    brokers.damage = lambda node, data: (
        data.replace(batch, claims(batch, 19)) if node == 2 else data
    )
    brokers.answer_bytes = 100_000
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost) == ([(0, 19), (20, 29), (30, 39)], ())
    assert seen.data == b"".join(brokers.batches[each] for each in ALL)


@pytest.mark.parametrize(("offset", "turned_to"), [(9, 11), (3, 19)])
def test_the_last_batch_before_files_that_vanished_stands_in_for_none_of_theirs(
    tmp_path: Path, log: KafkaLog, offset: int, turned_to: int
) -> None:
    """Even where it joins the next file that is there."""
    brokers = cluster(log, b1=[*range(offset), *range(20, 40)], b2=ALL)
    size = len(brokers.batches[0])
    rewrite(
        log, 0,
        lambda data: bytes(data[: offset * size]) + claims(brokers.batches[offset], turned_to),
    )  # fmt: skip
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost) == ([(0, 19), (20, 29), (30, 39)], ())
    assert seen.data == b"".join(brokers.batches[each] for each in ALL)


def test_what_a_batch_here_claims_that_nothing_bears_out_is_not_lost(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = cluster(log, b1=[*range(9), *range(20, 40)])
    size = len(brokers.batches[0])
    rewrite(log, 0, lambda data: bytes(data[: 9 * size]) + claims(brokers.batches[9], 11))
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.why_not) == ([], (), WhyNot.BLOCKED)
    assert "files here may have offsets 9 to 19, in batches that can't be read" in seen.text


@pytest.mark.parametrize(("offset", "turned_to"), [(18, 19), (15, 7), (10, 26)])
def test_a_held_batch_with_another_base_offset_is_not_taken(
    tmp_path: Path, offset: int, turned_to: int
) -> None:
    """The broker's file vanished; a replica has it right."""
    orders, outage = four_segments(tmp_path), Outage()
    batches = {
        batch.header.base_offset: bytes(batch.data)
        for base in (0, 10, 20)
        for batch in scan(orders.log_bytes(base), source="test")
    }

    def turn(data: bytearray) -> bytes:
        at = (offset - 10) * len(batches[10])
        return bytes(data[:at]) + claims(bytes(data[at:]), turned_to)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = Cluster({2: range(30)}, batches, answer_bytes=100_000)
        async with holding(world, outage) as node:
            rewrite(orders, 10, turn)
            remove(orders, 10)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            pieces = node.parts.reads.records(orders.partition, RecordsRequest(0, 10**9))
            assert b"".join([piece async for piece in pieces]) == b"".join(batches.values())

    run_virtually(main)


@pytest.mark.parametrize("turned_to", [7, 14, 17, 31, 15 + 2**20])
def test_a_held_batch_whose_place_another_base_offset_left_empty_is_not_lost(
    tmp_path: Path, turned_to: int
) -> None:
    """Only the hold has the segment."""
    orders, outage = four_segments(tmp_path), Outage()

    def turn(data: bytearray) -> bytes:
        at = len(data) // 2
        return bytes(data[:at]) + claims(bytes(data[at:]), turned_to)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = Cluster({1: range(30, 35)}, {}, starts={1: 30})
        async with holding(world, outage) as node:
            rewrite(orders, 10, turn)
            retention(orders, 0, 10, 20, start=30)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (node.finished(orders.partition), state.lost_ranges) == ([(0, 9)], ())
            told = node.remote_log.status(orders.partition).why_not_text
            assert "files here may have offsets 15 to " in told

    run_virtually(main)
