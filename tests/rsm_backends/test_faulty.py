"""Faults do what they say, so that tests built on them mean something."""

from __future__ import annotations

import random

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound, RetryLater
from rsm_backends.streams import read_all
from tests.rsm_backends.faulty import Fault, FaultKind, FaultyStore, RandomFaults, ScriptedFaults
from tests.rsm_backends.stores import memory_store

DATA = bytes(range(200))
CRC = crc32c(DATA)


async def test_a_fault_before_the_effect_changes_nothing() -> None:
    inner = memory_store()
    store = FaultyStore(inner, ScriptedFaults([("put", FaultKind.BEFORE_EFFECT)]))
    with pytest.raises(RetryLater):
        await store.put("a", DATA, crc32c=CRC)
    with pytest.raises(NotFound):
        await inner.head("a")
    await store.put("a", DATA, crc32c=CRC)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.TORN])
async def test_a_lost_answer_comes_after_the_effect(kind: FaultKind) -> None:
    inner = memory_store()
    store = FaultyStore(inner, ScriptedFaults([("put", kind)]))
    with pytest.raises(RetryLater):
        await store.put("a", DATA, crc32c=CRC)
    assert await read_all(inner, "a") == DATA


async def test_a_refusal_can_be_lost_too() -> None:
    store = FaultyStore(memory_store(), ScriptedFaults([("head", FaultKind.LOST_ANSWER)]))
    with pytest.raises(RetryLater):
        await store.head("none")


@pytest.mark.parametrize("size", [0, 200])
async def test_a_torn_stream_gives_a_beginning_and_an_error(size: int) -> None:
    inner = memory_store()
    await inner.put("a", DATA[:size], crc32c=crc32c(DATA[:size]))
    store = FaultyStore(inner, ScriptedFaults([("get", FaultKind.TORN)]))
    stream = store.get("a")
    if size:
        assert await anext(stream) == DATA[: size // 2]
    with pytest.raises(RetryLater):
        await anext(stream)
    assert await read_all(store, "a") == DATA[:size]


def test_a_script_is_followed_per_operation() -> None:
    plan = ScriptedFaults([("put", FaultKind.TORN), ("get", FaultKind.BEFORE_EFFECT)])
    assert plan.next_fault("get", "a") == Fault(FaultKind.BEFORE_EFFECT)
    assert plan.next_fault("get", "a") == Fault()
    assert plan.left == 1
    assert plan.next_fault("put", "a") == Fault(FaultKind.TORN)
    assert plan.left == 0


def test_the_same_seed_gives_the_same_faults() -> None:
    def faults(seed: int) -> list[Fault]:
        plan = RandomFaults(random.Random(seed).random, latency_max_s=1.0)
        return [plan.next_fault("get" if turn % 2 else "put", "a") for turn in range(400)]

    assert faults(1) == faults(1)
    assert faults(1) != faults(2)
    assert {fault.kind for fault in faults(1)} == set(FaultKind)


async def test_latency_is_slept_before_the_call() -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    class Slow:
        def next_fault(self, operation: str, key: str) -> Fault:
            return Fault(latency_s=0.5)

    store = FaultyStore(memory_store(), Slow(), sleep=sleep)
    await store.put("a", DATA, crc32c=CRC)
    assert await read_all(store, "a") == DATA
    assert slept == [0.5, 0.5]
    await FaultyStore(memory_store(), Slow()).list_page("")
