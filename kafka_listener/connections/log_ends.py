"""Resolves the partitions of a request, and finds where their logs end by their leaders'
reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kafka_formats.errors import CorruptData, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client, ReportedEnds
from kafka_listener.protocol import offsets
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.fetch import UNKNOWN, Ends, Wanted
from kafka_listener.protocol.offsets import TopicPartition
from kafka_listener.reading.read_port import BrokerLogEnds, TierEnds
from rlmm.wire.schema import Values

ENDS_S = 1.0
"""The greatest age of a leader's report by which a read of the tier is answered."""
PARTITIONS_MAX = 10_000
"""The most partitions whose leader's report is kept for one connection."""
NEVER = float("-inf")
LOCAL_VERSION = 8
"""The first version of ListOffsets that supports EARLIEST_LOCAL."""

Named = tuple[str | bytes, int]
"""A partition by its topic's name or id."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The ends of partitions' logs; one object per node. Reports are kept with the client."""

    brokers: Brokers
    monotonic: Callable[[], float]

    async def resolve(
        self, client: Client, wanted: Sequence[Wanted]
    ) -> dict[Named, TopicIdPartition]:
        """The partitions whose topic's name and id are known; while no broker answers, as last
        reported. The rest is left to the broker, which knows what is wrong with it.
        """
        found = self.resolved(wanted)
        unknown = {each.topic for each in wanted if (each.topic, each.partition) not in found}
        if unknown:
            names = [topic for topic in unknown if isinstance(topic, str)]
            ids = [topic for topic in unknown if isinstance(topic, bytes)]
            try:
                await self.brokers.learn_topics(await client.twin(), names, ids)
            except (RetryLater, CorruptData):
                return self._resolved(wanted, self.brokers.topics.last_id_of)
            return self.resolved(wanted)
        return found

    def resolved(self, wanted: Iterable[Wanted]) -> dict[Named, TopicIdPartition]:
        """The partitions whose topic's name and id brokers reported recently; no broker is
        asked.
        """
        return self._resolved(wanted, self.brokers.topics.id_of)

    def _resolved(
        self, wanted: Iterable[Wanted], id_of: Callable[[str], bytes | None]
    ) -> dict[Named, TopicIdPartition]:
        found = {}
        for each in wanted:
            topic = each.topic
            name = topic if isinstance(topic, str) else self.brokers.topics.name_of(topic)
            topic_id = topic if isinstance(topic, bytes) else id_of(topic)
            if name is not None and topic_id is not None:
                found[topic, each.partition] = TopicIdPartition(
                    name, Uuid(topic_id), each.partition
                )
        return found

    async def of(
        self, client: Client, partitions: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, BrokerLogEnds | int | None]:
        """The leader's report, at most `ENDS_S` old; while the leader is unreachable, its last one
        or None. An error of the leader is passed to the client: it asked the wrong node, or lacks
        the right.
        """
        now = self.monotonic()
        old = [
            tip
            for tip in partitions
            if (told := client.ends.get(tip)) is None or now - told.at > ENDS_S
        ]
        asked: dict[TopicIdPartition, BrokerLogEnds | int | None] = {}
        if old:
            try:
                asked = await self._ask(client, old)
            except (RetryLater, CorruptData):
                asked = {tip: _last_report(client.ends.get(tip)) for tip in old}
            for tip, ends in asked.items():
                if isinstance(ends, BrokerLogEnds) and ends.is_reachable:
                    client.ends[tip] = ReportedEnds(ends, now)
        found = {tip: asked[tip] if tip in asked else client.ends[tip].ends for tip in partitions}
        while len(client.ends) > PARTITIONS_MAX:
            client.ends.pop(next(iter(client.ends)))
        return found

    async def _ask(
        self, client: Client, partitions: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, BrokerLogEnds | int | None]:
        names = [(tip.topic, tip.partition) for tip in partitions]
        knows_local = (await client.versions()).get(Api.LIST_OFFSETS, (0, 0))[1] >= LOCAL_VERSION

        async def ask(timestamp: int, isolation: int) -> dict[TopicPartition, Values]:
            body = offsets.list_request(names, timestamp, isolation)
            answer = await client.ask(Api.LIST_OFFSETS, body, version_max=LOCAL_VERSION)
            return offsets.offsets_in(answer)

        # A topic may be recreated under its name, and the requests below have only the names.
        broker, topics = await client.twin(), self.brokers.topics
        await self.brokers.check_ids(
            broker, [(tip.topic, bytes(tip.topic_id)) for tip in partitions]
        )
        local = await ask(offsets.EARLIEST_LOCAL, 0) if knows_local else None
        start = await ask(offsets.EARLIEST, offsets.READ_UNCOMMITTED)
        # Ask for the last stable offset first, so that it is never above the high watermark.
        stable = await ask(offsets.LATEST, offsets.READ_COMMITTED)
        latest = await ask(offsets.LATEST, offsets.READ_UNCOMMITTED)
        answers = start, start if local is None else local, stable, latest
        found: dict[TopicIdPartition, BrokerLogEnds | int | None] = {}
        for tip, name in zip(partitions, names, strict=True):
            four = [each.get(name) for each in answers]
            # A broker that lags answers about an earlier topic, of perhaps higher leader epochs. An
            # id that is no longer remembered, with very many topics, is no different id.
            is_told = topics.is_told(broker.name, tip.topic, tip.topic_id)
            is_it = is_told and topics.id_of(tip.topic) in (None, tip.topic_id)
            found[tip] = _ends(four) if is_it else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def hold_until_s(self, client: Client, tip: TopicIdPartition) -> float:
        """The time at which the leader has to be asked again."""
        told = client.ends.get(tip)
        return NEVER if told is None else told.at + ENDS_S

    def shown(self, client: Client, tip: TopicIdPartition, tier: TierEnds | None) -> Ends:
        """The ends for an answer from the tier, or for an error answer (`tier` None). While the
        leader is unreachable they stay as last reported: consumers start over at an end that goes
        down.
        """
        told = client.ends.get(tip)
        start = UNKNOWN if tier is None else tier.log_start_offset
        if told is None:
            end = UNKNOWN if tier is None else tier.end_offset
            return Ends(end, end, start)
        return Ends(told.ends.high_watermark, told.ends.last_stable_offset, start)

    def begins_above(self, client: Client, tip: TopicIdPartition, offset: int) -> bool:
        """True if the leader's log began above the offset when it was last asked; no request is
        sent here. False if it was never asked, or its report is in doubt. Offsets below the
        leader's disk alone may be in the broker's own tier, which this node need not know.
        """
        told = client.ends.get(tip)
        if told is None or told.at == NEVER or told.ends.log_start_offset is None:
            return False
        return offset < told.ends.log_start_offset

    def doubt(self, client: Client, tip: TopicIdPartition) -> None:
        """Have the leader asked again. The end that it reported is shown until it answers."""
        told = client.ends.get(tip)
        if told is not None:
            client.ends[tip] = replace(told, at=NEVER)

    def saw(self, client: Client, tip: TopicIdPartition, answer: Values) -> None:
        """Record the ends in a leader's Fetch answer."""
        end, stable = answer["high_watermark"], answer["last_stable_offset"]
        if answer["error_code"]:
            return
        # Of a leader that was never asked, these ends are only shown; it is asked where they are
        # needed.
        told = client.ends.get(tip) or ReportedEnds(BrokerLogEnds(UNKNOWN, end, stable, 0), NEVER)
        if end > told.ends.high_watermark:
            stable = max(stable, told.ends.last_stable_offset)
            ends = replace(told.ends, high_watermark=end, last_stable_offset=stable)
            client.ends[tip] = replace(told, ends=ends)


def _last_report(told: ReportedEnds | None) -> BrokerLogEnds | None:
    if told is None or told.at == NEVER:
        return None
    return replace(told.ends, is_reachable=False)


def _ends(four: Sequence[Values | None]) -> BrokerLogEnds | int | None:
    """The report of a leader from its answers about the start, the local start, the stable and the
    latest offset.
    """
    for each in four:
        if each is None:
            return None
        if each["error_code"]:
            return int(each["error_code"])
    start, local, stable, latest = (each or {} for each in four)
    # After retention from before it tiered, a broker that tiers reports a local start that is too
    # low.
    on_disk = max(start["offset"], local["offset"])
    return BrokerLogEnds(
        leader_epoch=latest.get("leader_epoch", UNKNOWN),
        local_log_start_offset=on_disk,
        last_stable_offset=stable["offset"],
        high_watermark=latest["offset"],
        log_start_offset=start["offset"],
    )
