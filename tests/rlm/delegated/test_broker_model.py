"""A broker that believes its node, over restarts of both: nothing is lost, and planted bugs are
found by the same worlds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.delegated import wire
from rlm.delegated.calls import BrokerCalls
from rlm.delegated.deletions import BrokerDeletions
from rlm.delegated.fresh_leaders import FreshLeaders
from rlm.fetch.resolved_reads import ResolvedReads
from rlmm.segment import SegmentState
from tests.rlm.delegated.broker_model import TASKS, BrokerModel
from tests.rlm.delegated.delegating import NO_TOPICS, broker_of
from tests.rlm.delegated.plugin_client import client_of
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, new_world
from tests.rlm.virtual_time import run_virtually

LIVES = 4
STEPS = 40
QUICK = replace(
    LIMITS, upload_deadline_s=20.0, delete_delay_s=10.0, scan_interval_s=2.0, upload_margin_s=5.0
)


def lived(path: Path, seed: int) -> list[str]:
    """What a broker lost in the world of this seed."""
    chance = Random(seed)
    log = KafkaLog.create(new_log_dir(path / "kafka"), "orders", entries=((0, 0),))
    model = BrokerModel(log, chance, broker_of(log, stable=10**6))
    model.write()

    async def main() -> None:
        world = new_world(path, (log.log_dir,))
        for _ in range(LIVES):
            model.answer_by(broker_of(log, stable=10**6))
            async with world.boot(
                broker=model.answers, topics=NO_TOPICS, data_plane=True, limits=QUICK
            ) as node:
                await node.remote_log.start()
                plugin = client_of(node)
                async with plugin.http:
                    for _ in range(STEPS):
                        await step(model, plugin)
        if model.lost:
            return
        async with world.boot(
            broker=model.answers, topics=NO_TOPICS, data_plane=True, limits=QUICK
        ) as node:
            await node.remote_log.start()
            plugin = client_of(node)
            async with plugin.http:
                for _ in range(20):  # faults end: all is copied, and what was deleted is gone
                    for task in ("copy", "expire", "consume"):
                        await model.call(plugin, task)
                    await asyncio.sleep(20)
            if not model.lost:
                for _ in range(20):  # the node ends its deletions
                    await asyncio.sleep(100)
                    if not any(map(node.metadata.left_overs, node.metadata.partitions())):
                        break
                assert await plugin_is_done(model, node)
                await node.assert_quiesced()

    run_virtually(main)
    return model.lost


async def plugin_is_done(model: BrokerModel, node: Any) -> bool:
    """True if all sealed segments above the log start are in the tier."""
    there = {start for start, _ in node.finished(model.log.partition)}
    return set(range(model.log_start, model.end, 10)) <= there


async def step(model: BrokerModel, plugin: Any) -> None:
    chance = model.chance.random()
    if chance < 0.2:
        model.write()
    elif chance < 0.25:
        model.restart()
        plugin.session = model.session
    elif chance < 0.45:
        await asyncio.sleep(model.chance.choice((0.01, 1, 5)))
    else:
        await model.call(plugin, model.chance.choice(TASKS))


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_loses_nothing_whatever_restarts(tmp_path: Path, seed: int) -> None:
    assert lived(tmp_path, seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4, 44))
def test_a_broker_loses_nothing_over_many_seeds(tmp_path: Path, seed: int) -> None:
    assert lived(tmp_path, seed) == []


async def empty_list_before_it_is_ready(
    self: BrokerCalls, body: bytes, *, takes_changes: bool = False
) -> bytes:
    """[LOSS-2]"""
    try:
        return await LIST(self, body, takes_changes=takes_changes)
    except RetryLater:
        return wire.encode_page(0, b"", (), None)


def ready_at_once(self: BrokerCalls, body: bytes) -> bytes:
    return wire.encode_ready(0, True, "")


async def nothing_found_before_it_is_ready(self: BrokerCalls, body: bytes) -> bytes:
    """[LOSS-4]"""
    try:
        return await LOOK_UP(self, body)
    except RetryLater:
        return wire.encode_found(0, None)


async def begun_counts_as_copied(self: BrokerCalls, body: bytes) -> bytes:
    """[LOSS-3]"""
    asked = wire.decode_highest(body)
    rows = self.metadata.list_remote_log_segments(asked.partition, asked.leader_epoch)
    ends = [row.end_offset for row in rows if row.state is not SegmentState.DELETE_SEGMENT_STARTED]
    return wire.encode_highest(0, max(ends, default=None))


async def no_transaction_index(self: BrokerCalls, body: bytes) -> bytes:
    """[LOSS-5]"""
    if wire.decode_look_up(body).with_txn_index:
        return wire.encode_found(0, None)
    return await LOOK_UP(self, body)


async def last_byte_missing(
    self: ResolvedReads, id_: Uuid, start: int = 0, end: int | None = None
) -> AsyncIterator[bytes]:
    """[LOSS-6]"""
    async for piece in OPEN_LOG(self, id_, start, None if end is None else end - 1):
        yield piece


LIST, LOOK_UP, OPEN_LOG = (
    BrokerCalls.list_segments, BrokerCalls.look_up, ResolvedReads.open_log
)  # fmt: skip


async def leave_what_was_passed(*_: object) -> None:
    """What a run of the expiration left below the log start is counted again."""


async def count_at_once(*_: object) -> None:
    """What is on the disk of a fresh leader and in the tier counts twice."""


PLANTED: dict[str, dict[tuple[type, str], Callable[..., Any]]] = {
    "LOSS-2": {
        (BrokerCalls, "list_segments"): empty_list_before_it_is_ready,
        (BrokerCalls, "ready"): ready_at_once,
    },
    "LOSS-3": {(BrokerCalls, "highest"): begun_counts_as_copied},
    "LOSS-4": {(BrokerCalls, "look_up"): nothing_found_before_it_is_ready},
    "LOSS-5": {(BrokerCalls, "look_up"): no_transaction_index},
    "expires at once": {(FreshLeaders, "why_not_expire"): count_at_once},
    "expires again": {(BrokerDeletions, "start_passed"): leave_what_was_passed},
    "LOSS-6": {(ResolvedReads, "open_log"): last_byte_missing},
}


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for (of, method), faulty in PLANTED[name].items():
        monkeypatch.setattr(of, method, faulty)
    for seed in range(10):
        (tmp_path / str(seed)).mkdir()
        try:
            if lived(tmp_path / str(seed), seed):
                return
        except AssertionError:  # in the end not all is in the tier
            return
    pytest.fail(f"{name} was not found")
