"""Seeded worlds of shadow writers, and mistakes planted in them, each of which is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest

from rlm.migration import shadow_plan, shadow_writer
from rlm.migration.shadow_plan import ShadowRow, Tail, Transaction, TransactionLimits
from rlm.migration.topic_partitioner import metadata_partition
from rlmm.metadata_shadow import OutboxRow
from rlmm.records.segment_records import encode_segment_record
from tests.rlm.migration.shadow_world import (
    PARTITIONS,
    Entry,
    World,
    WrongTopicError,
    partition_of,
    run,
    state_of,
)

SEEDS = 40
SEEDS_OF_MISTAKES = 300


def judged(world: World) -> None:
    """Raise unless the end is the whole log, without an alarm."""
    run(world)
    last = world.nodes[world.leader]
    for partition in world.partitions:
        assert state_of(partition.seen) == partition.states[-1], "the topic lacks changes"
    assert not last.rows, f"{len(last.rows)} rows are still kept"
    assert (last.state.incomplete, last.state.foreign) == ("", "")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_topic_is_the_log_at_some_time(seed: int) -> None:
    judged(World(Random(seed)))


Plan = Callable[[Iterable[ShadowRow], Mapping[int, Tail], TransactionLimits], Transaction]
RIGHT: Plan = shadow_plan.next_transaction


def out_of_order(
    rows: Iterable[ShadowRow], tails: Mapping[int, Tail], limits: TransactionLimits
) -> Transaction:
    found = RIGHT(rows, tails, limits)
    return replace(found, rows={at: tuple(reversed(each)) for at, each in found.rows.items()})


def repeats(
    rows: Iterable[ShadowRow], tails: Mapping[int, Tail], limits: TransactionLimits
) -> Transaction:
    """Begins at the lowest row that is kept, whatever is in the topic."""
    return RIGHT(
        rows, {at: replace(tail, last=tail.last - 4) for at, tail in tails.items()}, limits
    )


def takes_the_highest_for_all(
    rows: Iterable[ShadowRow], tails: Mapping[int, Tail], limits: TransactionLimits
) -> Transaction:
    found = RIGHT(rows, tails, limits)
    return replace(found, written_up_to=max((each.last for each in tails.values()), default=-1))


def skips_what_waits(
    rows: Iterable[ShadowRow], tails: Mapping[int, Tail], limits: TransactionLimits
) -> Transaction:
    highest = max((tail.last for tail in tails.values()), default=-1)
    return RIGHT(rows, {at: replace(tail, last=highest) for at, tail in tails.items()}, limits)


def found_in(worlds: Iterable[World]) -> bool:
    for world in worlds:
        try:
            judged(world)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize(
    "plan", [out_of_order, repeats, takes_the_highest_for_all, skips_what_waits]
)
def test_a_mistake_of_the_plan_is_found(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_writer, "next_transaction", plan)
    assert found_in(World(Random(seed)) for seed in range(SEEDS_OF_MISTAKES))


@pytest.mark.parametrize(
    "mistake", ["reads_committed_alone", "reads_before_it_fences", "does_not_fence"]
)
def test_a_mistake_of_the_order_is_found(mistake: str) -> None:
    def worlds() -> Iterable[World]:
        for seed in range(SEEDS_OF_MISTAKES):
            world = World(Random(seed))
            if mistake == "does_not_fence":
                world.fences = False
            else:
                setattr(world, mistake, True)
            yield world

    assert found_in(worlds())


def test_the_judge_sees_a_segment_that_comes_back() -> None:
    """The one thing that must not happen: an add that is repeated after the end of its deletion."""
    world = World(Random(1))
    while len(world.partitions[0].states) < 12 or not world.ended:
        world.accept()
    values = [entry.value for entry in world.log if isinstance(entry, OutboxRow)]
    for value in values:
        number = metadata_partition(partition_of(value), PARTITIONS)
        world.partitions[number].append(Entry(0, value, 0))
    add = encode_segment_record(world.ended[0])
    number = metadata_partition(partition_of(add), PARTITIONS)
    with pytest.raises(WrongTopicError):
        world.partitions[number].append(Entry(0, add, 0))


def test_worlds_have_what_they_are_for() -> None:
    worlds = [run(World(Random(seed))) for seed in range(SEEDS)]
    entries = [each for world in worlds for part in world.partitions for each in part.entries]
    records = [each for each in entries if each.value is not None]
    assert len(records) > 60 * SEEDS
    assert sum(not each.committed for each in records) > SEEDS, "aborted, and read all the same"
    assert sum(world.epoch for world in worlds) > 10 * SEEDS, "sessions"
    assert sum(world.fenced for world in worlds) > SEEDS // 2, "late writers"
    assert sum(len(world.ended) for world in worlds) > 5 * SEEDS, "deleted segments"
