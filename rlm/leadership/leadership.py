"""Decides if this node works for a partition: claim it, go on, or keep away. Pure.

The decision uses a ListOffsets(latest, read_committed) answer of the node's *own* broker. It has
leader epoch and last stable offset together: an offset of one leadership, used in a different one,
could copy records that were truncated. Without a broker (a standalone directory) this node counts
as leader at the checkpoint's last epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kafka_formats.leader_epoch_checkpoint import Epochs
from rlm.control.why_not import WhyNot
from rlmm.partition_state import UNKNOWN_OFFSET, UNLIMITED, Claim, Mode, PartitionState
from rlmm.segment import Incarnation

CLEANUP_POLICIES = ("delete", "")
"""The values of `cleanup.policy` of topics that may be tiered. With the empty value Kafka deletes
nothing (LogConfig).
"""


@dataclass(frozen=True, slots=True)
class Leads:
    """The node's own broker leads the partition at this epoch, up to this last stable offset."""

    leader_epoch: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class NotLeading:
    """The node's own broker answers NOT_LEADER_OR_FOLLOWER."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The broker could not be asked, or does not know the answer yet; `reason` is a sentence."""

    reason: str


BrokerWord = Leads | NotLeading | NoAnswer


@dataclass(frozen=True, slots=True)
class LocalLogStart:
    """The first offset on the broker's disk, and the epoch of the leadership that reported it."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configs of a topic that matter here. Limits in ms and bytes, -1 is unlimited.
    `remote_storage_enable`: the brokers tier this topic themselves.
    """

    cleanup_policy: str
    retention_ms: int
    retention_bytes: int
    remote_storage_enable: bool

    @property
    def keeps_everything(self) -> bool:
        """True if Kafka expires nothing of the topic: with an empty policy no limit applies."""
        unlimited = self.retention_ms == self.retention_bytes == UNLIMITED
        return unlimited or not self.cleanup_policy


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """An accepted claim of this incarnation."""

    token: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RefusedClaim:
    """A claim that was refused at `since_ms`. It is not repeated at this epoch before `until_ms`,
    unless the claim `against` (a token, -1: none) was voided or followed, or an admin acted
    (`reset_stands`, `reset_cut_at` and `mode_offset` are the partition's at the refusal). A clock
    that shows less than `since_ms` was set back, and the claim is repeated.
    """

    leader_epoch: int
    against: int
    text: str
    until_ms: int
    reset_stands: bool = False
    reset_cut_at: int = UNKNOWN_OFFSET
    mode_offset: int = UNKNOWN_OFFSET
    since_ms: int = 0

    @classmethod
    def now(
        cls,
        leader_epoch: int,
        state: PartitionState | None,
        text: str,
        *,
        since_ms: int,
        until_ms: int,
    ) -> RefusedClaim:
        """The refusal of a claim while the partition was in this state."""
        refused = cls(leader_epoch, UNKNOWN_OFFSET, text, until_ms, since_ms=since_ms)
        if state is None:
            return refused
        return replace(
            refused,
            against=state.claim.token if state.claim is not None else UNKNOWN_OFFSET,
            reset_stands=state.reset_stands,
            reset_cut_at=state.reset_cut_at,
            mode_offset=state.mode_offset,
        )

    def still_stands(self, state: PartitionState | None, epoch: int, now_ms: int) -> bool:
        """True if nothing has happened that could make a claim at `epoch` succeed."""
        again = self.now(epoch, state, self.text, since_ms=self.since_ms, until_ms=self.until_ms)
        return self.since_ms <= now_ms < self.until_ms and self == again


@dataclass(frozen=True, slots=True)
class ProposeClaim:
    """Commit a claim at this epoch; facts read from the view before it do not count."""

    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Lead:
    """The claim is in force; plan with this last stable offset."""

    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class StandBy:
    """Start nothing. `cancel` also ends the copies under way."""

    why: WhyNot
    text: str
    cancel: bool


Decision = ProposeClaim | Lead | StandBy


@dataclass(frozen=True, slots=True)
class LeadershipFacts:
    """The facts of a decision. `state` is the partition in the view, None if no record names it.

    `wanted`: DELEGATED if the broker tiers the partition itself. `broker_log_start` is then the
    broker's log start, and `tier_ends_below(offset)` is True if the tier has a segment that ends
    below an offset. `log_start_untold`: why the log start is known only from the broker's disk, and
    not from its answer. `held`: why no delegated partition is claimed now.
    """

    word: BrokerWord
    checkpoint: Epochs
    state: PartitionState | None
    incarnation: Incarnation
    now_ms: int
    claim: OwnClaim | None = None
    refused: RefusedClaim | None = None
    wanted: Mode = Mode.SIDECAR
    broker_log_start: int = 0
    tier_ends_below: Callable[[int], bool] = lambda _: True
    log_start_untold: str | None = None
    held: StandBy | None = None


def decide(facts: LeadershipFacts) -> Decision:
    """Decide, once a scan; the rules that keep a node away come before the claim."""
    if isinstance(facts.word, NotLeading):
        return StandBy(WhyNot.NOT_LEADER, "this node's broker does not lead it", cancel=True)
    if facts.held is not None and _is_delegated(facts):
        return facts.held
    by_state = _kept_away_by_state(facts)
    if by_state is not None:
        return by_state
    if isinstance(facts.word, NoAnswer):
        # Copies under way may finish: the claim in the metadata log fences them, not the broker.
        overtaken = _overtaken(facts)
        if overtaken is not None:
            return overtaken
        return StandBy(WhyNot.BROKER_UNAVAILABLE, facts.word.reason, cancel=False)
    return _with_epoch(facts, facts.word)


def _is_delegated(facts: LeadershipFacts) -> bool:
    of_state = facts.state is not None and facts.state.mode is Mode.DELEGATED
    return of_state or facts.wanted is Mode.DELEGATED


def _overtaken(facts: LeadershipFacts) -> StandBy | None:
    """StandBy if a newer claim replaced this node's, whose copies could not finish. Else None."""
    standing = facts.state.claim if facts.state is not None else None
    if facts.claim is None or standing is None or standing.token == facts.claim.token:
        return None
    return _claimed_elsewhere(standing, facts.claim.leader_epoch)


def _kept_away_by_state(facts: LeadershipFacts) -> StandBy | None:
    state = facts.state
    if state is None:
        return None
    if state.delete_state is not None:
        word = state.delete_state.name
        return StandBy(WhyNot.PARTITION_DELETED, f"the partition is {word}", cancel=True)
    if facts.wanted is Mode.DELEGATED:
        return _kept_from_the_broker(facts, state)
    if state.mode is not Mode.SIDECAR:
        return StandBy(
            WhyNot.MODE,
            f"its mode is {state.mode.name.lower()}; only partitions in mode sidecar are copied "
            "by this node",
            cancel=True,
        )
    return None


def _kept_from_the_broker(facts: LeadershipFacts, state: PartitionState) -> StandBy | None:
    """The reason why the broker's remote log manager must not manage the partition; None if it may.
    It deletes all segments below its log start, and with them older history of the tier.
    """
    if lacks_older_history(facts) and facts.log_start_untold is not None:
        return StandBy(
            WhyNot.BROKER_UNAVAILABLE,
            "the tier has offsets below the broker's disk, and the broker's log start, its tier "
            f"included, is not known yet: {facts.log_start_untold}",
            cancel=True,
        )
    if lacks_older_history(facts):
        return StandBy(
            WhyNot.MODE,
            f"the tier has it from offset {state.log_start_offset} on, the broker from "
            f"{facts.broker_log_start} on, and with remote.storage.enable=true the broker deletes "
            "what the tier has below: set remote.storage.enable=false again and leave the mode as "
            "it is; consumers read the old part through a read replica",
            cancel=True,
        )
    if state.mode is not Mode.DELEGATED and not _mode_is_open(state):
        return StandBy(
            WhyNot.MODE,
            f"its mode is {state.mode.name.lower()}, and the broker tiers it itself "
            "(remote.storage.enable=true): an admin sets the mode to delegated first",
            cancel=True,
        )
    return None


def lacks_older_history(facts: LeadershipFacts) -> bool:
    """True if the tier has segments, below the broker's log, perhaps copied in a different mode."""
    state, start = facts.state, facts.broker_log_start
    if state is None or facts.wanted is not Mode.DELEGATED:
        return False
    may_be_older = _is_first_delegated_claim(state) and state.log_start_offset < start
    return may_be_older and facts.tier_ends_below(start)


def _is_first_delegated_claim(state: PartitionState) -> bool:
    """True if the tier's segments may have been copied in a different mode. A node copies nothing
    before a log start is recorded: without one, brokers copied all of them, even if the partition
    was paused since.
    """
    last = state.last_claim
    in_this_mode = last is not None and last.token >= state.mode_offset
    is_a_nodes = state.segment_count > 0 and state.log_start_offset >= 0
    return is_a_nodes and not (state.mode is Mode.DELEGATED and in_this_mode)


def _mode_is_open(state: PartitionState) -> bool:
    """True for a partition known only for its gaps: its first claim sets the mode."""
    return state.last_claim is None and state.mode_offset < 0


def _with_epoch(facts: LeadershipFacts, word: Leads) -> Decision:
    epoch = word.leader_epoch
    if not facts.checkpoint and word.last_stable_offset > 0:
        # A leader writes an entry before its first record, and retention keeps one.
        return StandBy(
            WhyNot.EPOCHS_MISSING,
            f"its leader-epoch-checkpoint has no entry, and its log reaches to offset "
            f"{word.last_stable_offset}: that file was lost. Let another replica lead, or restore "
            "it from one while this broker is down",
            cancel=False,
        )
    if not facts.checkpoint:
        return StandBy(
            WhyNot.NO_LEADER_EPOCH,
            "its leader-epoch-checkpoint has no entry: nothing was written to it yet",
            cancel=False,
        )
    on_disk = facts.checkpoint[-1].epoch
    if on_disk != epoch:
        # The broker writes the checkpoint before the first record of an epoch; at the next scan
        # both agree.
        return StandBy(
            WhyNot.EPOCH_NOT_ON_DISK,
            f"the broker leads at epoch {epoch}, its leader-epoch-checkpoint ends at {on_disk}",
            cancel=False,
        )
    standing = facts.state.claim if facts.state is not None else None
    token = standing.token if standing is not None else None
    if facts.claim == OwnClaim(-1 if token is None else token, epoch):
        return Lead(word.last_stable_offset)
    return _claim(facts, epoch, standing)


def _claim(facts: LeadershipFacts, epoch: int, standing: Claim | None) -> Decision:
    if standing is not None and not _may_follow(standing, epoch, facts.incarnation):
        return _claimed_elsewhere(standing, epoch)
    voided = facts.state.voided_claim if facts.state is not None else None
    if standing is None and voided is not None and epoch < voided.leader_epoch:
        return StandBy(
            WhyNot.CLAIMED_ELSEWHERE,
            f"it was claimed at leader epoch {voided.leader_epoch} before the claim was voided; "
            f"this node sees epoch {epoch}",
            cancel=True,
        )
    refused = facts.refused
    if refused is not None and refused.still_stands(facts.state, epoch, facts.now_ms):
        return StandBy(WhyNot.CLAIM_REFUSED, refused.text, cancel=False)
    return ProposeClaim(epoch)


def _claimed_elsewhere(standing: Claim, epoch: int) -> StandBy:
    return StandBy(
        WhyNot.CLAIMED_ELSEWHERE,
        f"node {standing.incarnation.node_id} holds the claim at leader epoch "
        f"{standing.leader_epoch}; this node sees epoch {epoch}",
        cancel=True,
    )


def _may_follow(standing: Claim, epoch: int, incarnation: Incarnation) -> bool:
    """Apply's rule for claims, checked first so that a certain refusal is not proposed again."""
    if epoch != standing.leader_epoch:
        return epoch > standing.leader_epoch
    there = standing.incarnation
    same = (there.node_id, there.directory_id) == (incarnation.node_id, incarnation.directory_id)
    return same and incarnation.boot_counter >= there.boot_counter
