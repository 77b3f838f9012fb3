"""Writes of the remote log metadata manager that keep an admin's decisions about the trash.

A hold names the policy under which it is in force, and the time of a mark goes on while the
partition's deletion is marked. So the records that keep a hold or take marks back are written
together with the record that would otherwise end the hold, or let the marks take effect. The rules
of apply do not know of this, so that nodes of different releases come to the same state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafka_formats.errors import Conflict, OutcomeUnknown, StrandlineError
from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.manager.metadata_limits import WRITE_DEADLINE_S
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import ExpiryTakenBack, PartitionDeleteUndo, TopicPolicyChange
from rlmm.records.records import MetadataRecord, encode
from rlmm.rows.expiry import find_expiry
from rlmm.rows.queries import newest_topic_id, partitions_of_topic
from rlmm.rows.reads import read_partition_row, read_policy
from rlmm.segment import PartitionDeleteState

TOGETHER_BYTES_MAX = 256 * 1024
"""The most bytes of records beside the first of a proposal, which the log takes as one batch."""
FOLLOW_UPS_MAX = 1_000
"""The most proposals behind a change of policy. Each carries holds on that did not fit, or that
were set while the change was under way.
"""
UNDONE = "the deletion of the topic was undone: the time of its trash begins anew"


class TrashWrites(MetadataReads):
    """Raises as the manager's other writes do."""

    @abstractmethod
    async def _write_together(self, records: Sequence[MetadataRecord], deadline_s: float) -> int:
        """Propose records as neighbours and hear the outcome of the first; its metadata offset."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Return once everything completed before this call is applied here."""

    async def set_topic_policy(
        self, record: TopicPolicyChange, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Set retention and kill switches of a topic. A hold stays in force while the retention
        stays as it is: only a different retention ends it.
        """
        before = read_policy(self._view, record.topic)
        if before.offset != record.replaces_offset:
            await self.catch_up()
            before = read_policy(self._view, record.topic)
        held = self._carried_on(before, record) if before.offset == record.replaces_offset else []
        some = _that_fit(held)
        tried = {_subject(each) for each in some}
        offset = await self._write_together((record, *some), deadline_s)
        for _ in range(FOLLOW_UPS_MAX):
            if read_policy(self._view, record.topic).offset != offset:
                break  # nothing was changed, or a different policy is in force by now
            held = self._carried_on(before, record)
            # The same record would be refused again.
            some = _that_fit(each for each in held if _subject(each) not in tried)
            if not some:
                break
            tried.update(map(_subject, some))
            await self._follow_up(offset, some, deadline_s)
        return offset

    def _carried_on(self, before: TopicPolicy, change: TopicPolicyChange) -> list[ExpiryTakenBack]:
        """The holds under the policy `before`, of partitions whose retention stays, once more.
        Without those that are being deleted: apply refuses a record about their trash.
        """
        after = change.policy
        if after.topic_id == ZERO_UUID:
            after = replace(after, topic_id=newest_topic_id(self._view, change.topic))
        found = []
        for tip in partitions_of_topic(self._view, change.topic):
            if _retention(before, tip) != _retention(after, tip):
                continue
            expiry = find_expiry(self._view, tip)
            hold = expiry.held_by(before.offset)
            if hold is None:
                continue
            row = read_partition_row(self._view, tip)
            if row is not None and row.delete_state is None:
                found.append(ExpiryTakenBack(tip, expiry.offset, True, hold.who, hold.why))
        return found

    async def undo_partition_delete(
        self,
        record: PartitionDeleteUndo,
        *,
        hold: bool = False,
        who: str = "",
        why: str = UNDONE,
        deadline_s: float = WRITE_DEADLINE_S,
    ) -> int:
        """Take back a partition's deletion mark, and the marks of retention from before: their time
        went on, so they would take effect at once. `hold`: retention waits; else its next pass
        marks expired segments anew.
        """
        state = self.partition_state(record.partition)
        beside: list[ExpiryTakenBack] = []
        if state is not None and state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED:
            expiry = state.expiry
            if expiry.marks:
                back = ExpiryTakenBack(record.partition, expiry.offset, hold, who, why)
                beside.append(back)
        return await self._write_together((record, *beside), deadline_s)

    async def take_expiry_back(
        self, record: ExpiryTakenBack, *, deadline_s: float = WRITE_DEADLINE_S
    ) -> int:
        """Take back a partition's expiry marks, or release a hold, for an admin."""
        return await self._write_together((record,), deadline_s)

    async def _follow_up(
        self, offset: int, records: Sequence[MetadataRecord], deadline_s: float
    ) -> None:
        try:
            await self._write_together(records, deadline_s)
        except Conflict:
            return  # the trash changed: the next look shows how
        except StrandlineError as error:
            raise OutcomeUnknown(
                f"the policy is set at metadata offset {offset}, and holds of the topic may have "
                f"ended with it: look at `strandline trash list` ({error})"
            ) from error


def _retention(policy: TopicPolicy, tip: TopicIdPartition) -> tuple[int, int]:
    """The part of a policy on which a hold of the partition depends."""
    counts = policy.counts_for(tip.topic_id)
    return counts.retention_ms, counts.retention_bytes


def _subject(record: ExpiryTakenBack) -> tuple[TopicIdPartition, int]:
    """The partition of a record, and the metadata offset of the trash that it names."""
    return record.partition, record.replaces_offset


def _that_fit(records: Iterable[ExpiryTakenBack]) -> list[ExpiryTakenBack]:
    """The first of the records, as many as one write may contain."""
    found: list[ExpiryTakenBack] = []
    size_bytes = 0
    for record in records:
        size_bytes += len(encode(record).value)
        if found and size_bytes > TOGETHER_BYTES_MAX:
            break
        found.append(record)
    return found
