"""Answers ListOffsets and OffsetForLeaderEpoch from the tier and the leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kafka_formats.errors import CorruptData, RetryLater, StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.access.rights import RIGHTS_UNKNOWN
from kafka_listener.connections.client import Client
from kafka_listener.connections.log_ends import LogEnds
from kafka_listener.connections.read_counts import ReadCounts
from kafka_listener.connections.shares import Turns
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.protocol import offsets
from kafka_listener.protocol.codec import ClientRequest
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.fetch import Wanted
from kafka_listener.protocol.offsets import Asked, TopicPartition
from kafka_listener.reading.read_port import BrokerLogEnds, EpochEnd, FoundOffset, TierReads
from rlmm.wire.schema import Values

Reports = dict[Asked, tuple[TopicIdPartition, BrokerLogEnds | None]]
"""The leader's report by which the tier left a partition to the leader."""


@dataclass(frozen=True, slots=True)
class OffsetAnswers:
    """The answers of a node about offsets."""

    tier: TierReads
    ends: LogEnds
    counts: ReadCounts
    rights: TopicRights
    turns: Turns

    async def list_offsets(self, client: Client, request: ClientRequest) -> Values:
        """Ask the tier first where it may know better, then the leader once for the rest."""
        all_asked = offsets.asked_in(request.body)
        refused = await self._refused(client, {one.topic for one in all_asked})
        found: dict[Asked, FoundOffset | ErrorCode] = {
            one: refused[one.topic] for one in all_asked if one.topic in refused
        }
        asked = [
            one for one in all_asked if one not in found and offsets.tier_is_asked(one.timestamp)
        ]
        reports: Reports = {}
        await self.turns.in_slices(asked, partial(self._ask_tier, client, found, reports))
        return await self._with_leader(client, request, found, reports)

    async def _ask_tier(
        self,
        client: Client,
        found: dict[Asked, FoundOffset | ErrorCode],
        reports: Reports,
        asked: Sequence[Asked],
    ) -> None:
        known = await self._known(client, [(one.topic, one.partition) for one in asked])
        told = await self.ends.of(client, list(known.values()))
        for one in asked:
            tip = known.get((one.topic, one.partition))
            if tip is None:  # it may be tiered or not
                self.counts.not_available(f"the id of topic {one.topic} is not known")
                found[one] = ErrorCode.LEADER_NOT_AVAILABLE
                continue
            broker = told[tip]
            if isinstance(broker, int):
                # If the client asked again, the leader might answer, but it knows nothing below its
                # own disk.
                may_not = broker == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if not may_not:
                    self.counts.not_available(f"{tip}: its leader answered error {broker}")
                found[one] = ErrorCode(broker) if may_not else ErrorCode.LEADER_NOT_AVAILABLE
                continue
            answer = await self._of_tier(tip, one.timestamp, broker)
            if answer is not None:
                found[one] = answer
            is_left = not isinstance(answer, ErrorCode) and offsets.disk_matters(
                one.timestamp, answer
            )
            if is_left and self.tier.ends(tip) is not None:
                reports[one] = tip, broker

    async def _of_tier(
        self, tip: TopicIdPartition, timestamp: int, broker: BrokerLogEnds | None
    ) -> FoundOffset | ErrorCode | None:
        try:
            return await self.tier.list_offsets(tip, timestamp, broker)
        except StrandlineError as error:
            self.counts.not_available(str(error))
            return ErrorCode.LEADER_NOT_AVAILABLE

    async def _with_leader(
        self,
        client: Client,
        request: ClientRequest,
        found: dict[Asked, FoundOffset | ErrorCode],
        reports: Reports,
    ) -> Values:
        whole = [
            one
            for one, answer in found.items()
            if isinstance(answer, ErrorCode) or not offsets.leader_is_asked(one.timestamp, answer)
        ]
        left = offsets.without(request.body, whole)
        leader: dict[TopicPartition, Values] = {}
        if left["topics"]:
            try:
                answer = await client.exchange(request.head, request.client_id, left)
                leader = offsets.offsets_in(answer)
            except (RetryLater, CorruptData) as error:
                self.counts.not_available(str(error))
        if leader:
            check = partial(self._check_disks, client, reports, found)
            await self.turns.in_slices(list(reports), check)
        return offsets.merged(request.body, leader, found)

    async def _check_disks(
        self,
        client: Client,
        reports: Reports,
        found: dict[Asked, FoundOffset | ErrorCode],
        some: Sequence[Asked],
    ) -> None:
        """Discard the leader's answers if local retention has moved the start of its disk since the
        report: the tier may have the records in between, which the answer skips.
        """
        tips = list(dict.fromkeys(reports[one][0] for one in some))
        for tip in tips:
            self.ends.doubt(client, tip)
        told = await self.ends.of(client, tips)
        for one in some:
            tip, before = reports[one]
            now = told[tip]
            stays = (
                before is not None
                and isinstance(now, BrokerLogEnds)
                and now.local_log_start_offset <= before.local_log_start_offset
            )
            if not stays:
                self.counts.not_available(
                    f"where the disk of the leader of {tip} begins was not known, or moved, while "
                    "it searched for an offset"
                )
                found[one] = ErrorCode.LEADER_NOT_AVAILABLE

    async def epoch_ends(self, client: Client, request: ClientRequest) -> Values:
        """The leader's answers, and the tier's for epochs that the leader's epoch cache does not
        cover.
        """
        refused = await self._refused(client, {each["topic"] for each in request.body["topics"]})
        asked = offsets.without_topics(request.body, refused)
        body = await self._epoch_ends(client, request, asked)
        offsets.refuse_epochs(body, request.body, refused)
        return body

    async def _epoch_ends(self, client: Client, request: ClientRequest, asked: Values) -> Values:
        epochs = offsets.epochs_in(asked)
        below: dict[TopicPartition, EpochEnd] = {}

        async def ask_tier(some: Sequence[TopicPartition]) -> None:
            known = await self._known(client, some)
            told = await self.ends.of(client, list(known.values()))
            for name, tip in known.items():
                broker = told[tip]
                if isinstance(broker, BrokerLogEnds):
                    end = self.tier.epoch_end(tip, epochs[name], broker)
                    if end is not None:
                        below[name] = end

        await self.turns.in_slices(list(epochs), ask_tier)
        try:
            body = await client.exchange(request.head, request.client_id, asked)
        except (RetryLater, CorruptData) as error:
            self.counts.not_available(str(error))
            return offsets.no_epoch_ends(asked, below)
        offsets.with_epoch_ends(body, below)
        return body

    async def _refused(self, client: Client, topics: set[str]) -> dict[str, ErrorCode]:
        refused = await self.rights.refused(client, topics)
        for topic, error in refused.items():
            if error == ErrorCode.LEADER_NOT_AVAILABLE:
                self.counts.not_available(RIGHTS_UNKNOWN % topic)
        return refused

    async def _known(
        self, client: Client, names: Sequence[TopicPartition]
    ) -> dict[TopicPartition, TopicIdPartition]:
        """The partitions whose topic's id is known. The tier finds out by itself whether it has
        them, after a barrier.
        """
        wanted = [Wanted((0, 0), topic, partition, 0, 0) for topic, partition in names]
        resolved = await self.ends.resolve(client, wanted)
        return {
            (topic, partition): tip
            for (topic, partition), tip in resolved.items()
            if isinstance(topic, str)
        }
