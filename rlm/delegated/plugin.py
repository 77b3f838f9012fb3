"""The plug-in of this node's broker: its session, its partitions, and the copies it began."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import Surroundings
from rlm.delegated import at_work, sessions
from rlm.delegated.foreign_objects import BY_BROKER, is_the_brokers
from rlm.delegated.sessions import PARTITIONS_MAX, Expected, Session, SessionRefused, Sessions
from rlm.delegated.wire import WHOLE_SET, Announcement
from rlm.leadership.announced import LookEnded, Tips
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

logger = logging.getLogger(__name__)

ADDS_MAX = 10_000
"""The most unfinished copies whose session is remembered; older ones end only by their deadline."""
TOLD_FOR_S = 60.0
"""The time for which a refused plug-in is reported: it announces every 5 s, so if its last refusal
is longer ago, it is gone or was corrected.
"""
SILENT_S = 60.0
LOOKS_AT_UNTOLD = 8
"""The most early looks after an announcement, while the logs of announced partitions are not known;
after these the regular looks have to do.
"""
ONE_CHANGE_MAX = 1_000
"""The most partitions of an announcement that is certainly not one of several parts, which a
plug-in makes of long ones: a part has at least three times as many.
"""
COUNT_WHAT_IS_DELETED = ("3.", "7.")
"""Beginnings of the Kafka versions that count them. Confluent's 7.x are Kafka 3.x."""


def ignore_address(_bootstrap: str) -> None:
    """Ignore the address: the settings name the broker."""


def never_moved() -> bool:
    """Return False, for a cluster that did not move here from Kafka's own metadata topic."""
    return False


def holds_no_claim(_tip: TopicIdPartition) -> bool:
    """Return False: this process's claims are not known."""
    return False


@dataclass(slots=True)
class Plugin:
    """The plug-in of a node's broker, if it has one. `on_changed` is called with the partitions
    whose leadership has, or may have, changed; `on_address` with the broker's address. `moved` and
    `serves_storage`: see `foreign_objects.is_the_brokers`. `_not_looked_at`: announced partitions
    whose log is not known, with the number of the announcement. `_led_on`: those of them that the
    broker led before, with a log that was known. `_named`: partitions of the last announcement.
    """

    around: Surroundings
    on_changed: Callable[[Iterable[TopicIdPartition]], None]
    on_address: Callable[[str], None] = ignore_address
    moved: Callable[[], bool] = never_moved
    serves_storage: bool = False
    holds_claim: Callable[[TopicIdPartition], bool] = holds_no_claim
    _sessions: Sessions = field(default_factory=Sessions)
    _adds: dict[Uuid, Uuid] = field(default_factory=dict)
    _refused: tuple[float, SessionRefused | None] = (0.0, None)
    _has_news: bool = False
    _announcements: int = 0
    _early_looks: int = 0
    _not_looked_at: dict[TopicIdPartition, int] = field(default_factory=dict)
    _led_on: frozenset[TopicIdPartition] = frozenset()
    _named: int = 0

    @property
    def session(self) -> Session | None:
        """The session that counts; None before the first announcement."""
        return self._sessions.current

    def announce(self, said: Announcement) -> None:
        """Take an announcement; the errors are those of `sessions.hear`."""
        try:
            heard = sessions.hear(self._sessions, said, self.expected, self._now_s())
        except SessionRefused as error:
            self._refused = self._now_s(), error
            raise
        before = self.session
        self._sessions = heard.sessions
        self.on_address(said.bootstrap)
        if before is None or before.id != said.session:
            logger.info(
                "the plug-in %s of broker %d (Kafka %s) announces %d partitions that it leads and "
                "%d that it follows",
                said.plugin_version, said.broker_id, said.kafka_version, len(said.leaders),
                len(said.followers),
            )  # fmt: skip
        if heard.changed:  # else a sign of life, each few seconds
            self.on_changed(heard.changed)
            self._has_news = True
            self._announcements += 1
            self._early_looks = LOOKS_AT_UNTOLD
            self._led_on = self._led_on - heard.changed | self._leads_on(said, before)
            self._not_looked_at |= dict.fromkeys(heard.changed, self._announcements)
            if len(self._not_looked_at) > PARTITIONS_MAX:  # looks hang: forget what it has no more
                self._not_looked_at = {
                    tip: number for tip, number in self._not_looked_at.items() if self.has(tip)
                }

    def _leads_on(self, said: Announcement, before: Session | None) -> frozenset[TopicIdPartition]:
        """The announced leaderships that the broker had before, with a log that was known. Brokers
        announce them again at each change of the in-sync replicas. None if the announcement has
        several changes, as after calls that failed, or belongs to a long one in parts: of a broker
        that followed in between, and truncated its log, it only has that it leads.
        """
        several = said.seq - said.base_seq > 1 or self._named >= ONE_CHANGE_MAX
        self._named = len(said.leaders) + len(said.followers) + len(said.stopped)
        if several or before is None or before.id != said.session or said.base_seq == WHOLE_SET:
            return frozenset()
        return frozenset(
            tip
            for tip in said.leaders
            if tip in before.leaders and (tip not in self._not_looked_at or tip in self._led_on)
        )

    def call(self, session: Uuid, seq: int) -> Session:
        """The session of a call. AnnounceAgain: it is unknown, or its newest announcement is
        missing.
        """
        self._sessions = sessions.call(self._sessions, session, seq, self._now_s())
        assert self._sessions.current is not None, "a call has a session"
        return self._sessions.current

    def has(self, tip: TopicIdPartition, /) -> bool:
        """True if the broker tiers this partition itself, through this node."""
        return self.session is not None and self.session.has(tip)

    @property
    def leaders(self) -> Collection[TopicIdPartition]:
        """The partitions that the broker leads and tiers."""
        return () if self.session is None else self.session.leaders

    @property
    def is_silent(self) -> bool:
        """True if no request came for SILENT_S: the broker may run without the plug-in now."""
        return self.session is None or self._silence_s >= SILENT_S

    def added(self, segment: Uuid) -> None:
        """Remember the session that begins this copy."""
        if self.session is not None:
            self._adds[segment] = self.session.id
        if len(self._adds) > ADDS_MAX:
            del self._adds[next(iter(self._adds))]

    def finished(self, segment: Uuid) -> None:
        """Forget a copy that has ended."""
        self._adds.pop(segment, None)

    def is_at_work(self, row: RemoteLogSegmentMetadata, token: int, /) -> bool:
        """True while the broker may still finish this unfinished copy, under the claim `token`."""
        if self.why_by_broker(row) is not None:
            return True  # also once the copy was given up: its objects are the broker's to delete
        margin_ms = round(self.around.limits.upload_margin_s * 1000)
        return at_work.is_at_work(
            row,
            token=token,
            me=self.around.identity.incarnation,
            added_by=self._adds.get(row.segment_id.id),
            session=None if self.session is None else self.session.id,
            overdue_ms=self.around.ambient.now_ms() - margin_ms,
        )

    def why_by_broker(self, row: RemoteLogSegmentMetadata) -> str | None:
        """The reason why this node must not end the row's deletion; None: it may."""
        moved, serves = self.moved(), self.serves_storage
        by_broker = is_the_brokers(row, moved=moved, serves_storage=serves)
        return BY_BROKER if by_broker else None

    def is_left_out(self, row: RemoteLogSegmentMetadata, epoch: int | None) -> bool:
        """True for a segment whose deletion this node finishes, and that the broker must not see.
        In the list of an epoch a leader would take its start for the log start
        (findLogStartOffset), above the records on its disk. In the list of all epochs (None)
        brokers before Kafka 4.0 count it for `retention.bytes` as long as its row exists, and each
        run until then would delete as much again (KAFKA-17428).
        """
        return (
            row.state is SegmentState.DELETE_SEGMENT_STARTED
            and self.session is not None
            and (epoch is not None or self.session.kafka_version.startswith(COUNT_WHAT_IS_DELETED))
            and self.why_by_broker(row) is None
        )

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problems of a plug-in that was refused, or has become silent."""
        now_s, area = self._now_s(), ProblemArea.PLUGIN
        problems = []
        refused_s, error = self._refused
        if error is not None and now_s - refused_s < TOLD_FOR_S:
            problems.append(NodeProblem(area, error.reason.lower(), str(error)))
        if self.session is not None and self.is_silent:
            text = (
                f"the plug-in of this node's broker sent no request for {self._silence_s:.0f} s: "
                "check that the broker runs, and that it can reach this node"
            )
            problems.append(NodeProblem(area, "silent", text))
        return tuple(problems)

    def take_news(self) -> bool:
        """True once after an announcement: its partitions have to be looked at, and claimed."""
        had, self._has_news = self._has_news, False
        return had

    def look_begins(self) -> LookEnded:
        """Begin a look. Call the returned function once the rows have the look's results."""
        begun = self._announcements

        def ended(untold: Tips, among: Tips | None = None, /) -> None:
            waiting = self._not_looked_at
            seen = (waiting.keys() if among is None else among & waiting.keys()) - untold
            for tip in seen:
                if waiting[tip] <= begun:
                    del waiting[tip]
            is_whole = among is None
            if is_whole and self._early_looks > 0 and not untold.isdisjoint(waiting):
                self._early_looks -= 1
                self._has_news = True
            self._led_on &= waiting.keys()

        return ended

    def why_unlooked(self, tip: TopicIdPartition) -> str | None:
        """The reason why this node does not know the log of a partition that the broker leads: no
        look that began after its last announcement has ended and found out enough; an earlier look
        has the leadership before. None: the log is known, or the broker does not lead.
        """
        if tip not in self.leaders or tip not in self._not_looked_at:
            return None
        return (
            "this node has not looked at its broker since the broker announced it, or could not "
            "read its replica then, or the broker did not answer that it leads it"
        )

    def why_not_read(self, tip: TopicIdPartition) -> str | None:
        """The reason why no segment of a partition that the broker leads may be read: as
        `why_unlooked`, but None where the broker led before and this process has the last claim:
        then no other broker copied since, and the log contains all that this broker copied, since
        only followers truncate their logs.
        """
        if tip in self._led_on and self.holds_claim(tip):
            return None
        return self.why_unlooked(tip)

    @property
    def _silence_s(self) -> float:
        return 0.0 if self.session is None else self._now_s() - self.session.heard_s

    @property
    def expected(self) -> Expected:
        """The broker that this node serves."""
        identity = self.around.identity
        return Expected(identity.kafka_cluster_id, identity.incarnation.node_id)

    def _now_s(self) -> float:
        return self.around.ambient.monotonic()
