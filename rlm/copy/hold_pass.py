"""The input and the result of one pass over the hold directories."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.run_events import HoldReleased
from rlm.copy.partition_status import CopyUnderWay
from rlm.local_log.committed_plan import LastSeen, Proof, committed_end
from rlm.local_log.hold_directory import HoldDirectory, own_segment
from rlm.local_log.hold_plan import (
    NOT_A_LOSS,
    HoldFacts,
    Release,
    Unit,
    why_let_go,
)
from rlm.local_log.log_dir import LocalPartition, LocalSegment


@dataclass(frozen=True, slots=True)
class Order:
    """The input of a pass for one partition, collected on the event loop. `led`: the epoch that the
    broker leads under this topic id; None: it does not lead, or does not answer (`is_heard` is then
    False). `is_delegated`: the broker tiers the partition itself, and keeps uncopied segments.
    `told`: the last stable offset that the broker reported as the leader of the log's last epoch;
    -1: none.
    """

    local: LocalPartition
    facts: HoldFacts
    copying: CopyUnderWay | None
    led: int | None
    is_heard: bool
    is_delegated: bool
    told: int = -1


@dataclass(frozen=True, slots=True)
class Orders:
    """The input of a pass. `deleted`: partitions gone from this disk that no node needs."""

    by_partition: dict[TopicIdPartition, Order]
    deleted: frozenset[TopicIdPartition]

    def busy(self, unit: Unit) -> bool:
        """True while a copy of the unit's offsets is under way."""
        order = self.by_partition.get(unit.partition)
        copying = None if order is None else order.copying
        return (
            copying is not None
            and unit.base_offset <= copying.end_offset
            and copying.start_offset < unit.next_base_offset
        )

    def own_segment(self, unit: Unit) -> LocalSegment | None:
        """The broker's segment whose file is the unit's; None if there is none."""
        order = self.by_partition.get(unit.partition)
        return None if order is None or unit.alone else own_segment(order.local, unit.segment)

    def has_left(self, unit: Unit, own: LocalSegment | None) -> bool:
        """True if the unit's file is in no log any more, so that it is no longer written to."""
        return unit.alone or (own is None and unit.partition in self.by_partition)

    def proof(self, partition: TopicIdPartition, seen: LastSeen) -> Proof:
        """The function that finds how much of a file that left the log was surely committed; the
        file was last in the log when this was `seen`.
        """
        order = self.by_partition.get(partition)
        facts, led = (None, None) if order is None else (order.facts, order.led)
        return partial(committed_end, facts=facts, seen=seen, led=led)

    def may_yet_prove(self, partition: TopicIdPartition) -> bool:
        """True while unproven records have to wait: the replica may come back and continue them, or
        its broker may answer that it leads.
        """
        order = self.by_partition.get(partition)
        return order is None or not order.is_heard

    def with_wanted(self, unit: Unit) -> Unit:
        """The unit, wanted unless its topic is left out now."""
        order = self.by_partition.get(unit.partition)
        wanted = order is None or not order.facts.left_out
        return unit if unit.wanted == wanted else replace(unit, wanted=wanted)

    def why_let_go(self, unit: Unit, own: LocalSegment | None) -> Release | None:
        """The reason to release the unit; None while it may be needed: a missing replica may come
        back.
        """
        order = self.by_partition.get(unit.partition)
        if order is not None:
            return why_let_go(order.facts, unit, own)
        return Release.PARTITION_DELETED if unit.partition in self.deleted else None

    def why_denied(self, unit: Unit, own: LocalSegment | None) -> Release:
        """The reason to release records that are not proven committed: DIVERGED unless there is a
        different one.
        """
        return self.why_let_go(unit, own) or Release.DIVERGED


@dataclass(slots=True)
class Passed:
    """The result of a pass, with its first failure; the rest went on."""

    released: list[HoldReleased] = field(default_factory=list)
    error: OSError | None = None

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Note a failure and go on: other segments must still be held, and room be made."""
        try:
            yield
        except OSError as error:
            self.error = self.error or error

    def let_go(self, directory: HoldDirectory, unit: Unit, why: Release) -> None:
        """Release a unit. On OSError it is held as before."""
        going = directory.release(unit)
        self.released.append(released(unit, why))
        if going is not None:
            with self.going_on():
                directory.remove(going)


def released(unit: Unit, why: Release) -> HoldReleased:
    """The event of a released unit."""
    return HoldReleased(
        unit.partition, unit.base_offset, unit.next_base_offset - 1,
        unit.segment.size_bytes, why.value, missed=unit.alone and why not in NOT_A_LOSS,
    )  # fmt: skip
