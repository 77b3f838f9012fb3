"""Operators' changes to the quorum: voters, leadership, a cut tail; on the leader's node.

The core decides; this turns its answers into errors that say what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from rlmm.log.quorum_records import Voter
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.framing import voter_set
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.raft.actions import Role
from rlmm.raft.events import AcceptCut, Event, TransferLeadership
from rlmm.raft.messages import (
    AddVoterRequest,
    DescribeQuorumResponse,
    Error,
    RemoveVoterRequest,
    ReplicaDescription,
    ReplicaKey,
    VoterChangeResponse,
)
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels, check_may_finalise

CAUGHT_UP_WITHIN_MS = 5_000
"""A voter is alive if it was at the leader's log end within this time."""


@dataclass(frozen=True, slots=True)
class CanStop:
    """The answer whether a node may be stopped without losing the majority, with the reason."""

    allowed: bool
    reason: str


class QuorumAdmin:
    """The operations of one node. On a node that does not lead they raise Conflict NOT_LEADER,
    which names the leader.
    """

    def __init__(self, driver: QuorumDriver, *, levels_known: FeatureLevels = LEVELS_KNOWN) -> None:
        self._driver = driver
        self._levels_known = levels_known

    async def add_voter(self, voter: Voter, *, deadline_s: float) -> None:
        """Add a voter: wait until it, an observer so far, has caught up and the change is
        committed. AlreadyExists: a voter has that node id. OutcomeUnknown: check the voters before
        trying again.
        """
        (wanted,) = voter_set((voter,)).voters
        request = AddVoterRequest(wanted, int(deadline_s * 1000))
        await self._change(request, deadline_s)

    async def remove_voter(
        self, node_id: int, directory_id: str | None, *, deadline_s: float
    ) -> None:
        """Remove a voter; `directory_id` None: the directory of the voter with the node id.
        NotFound: not a voter. Conflict TOO_FEW_WOULD_REMAIN: too few of the remaining voters keep
        up for a majority.
        """
        self._check_leads()
        key = self._voter_key(node_id, directory_id)
        check_may_remove(self._driver.core.describe(), node_id, self._driver.now_monotonic_ms())
        request = RemoveVoterRequest(key, int(deadline_s * 1000))
        await self._change(request, deadline_s)

    async def transfer(self, node_id: int | None, *, deadline_s: float) -> None:
        """Hand leadership to a voter, or to the most caught-up one; done when it leads.

        An election decides who leads next. Conflict NOT_TRANSFERRED: another node won it, and is
        named. RetryLater: this node gave leadership up, and no leader is known yet.
        """
        self._check_leads()
        target = None if node_id is None else self._voter_key(node_id, None)
        core = self._driver.core
        epoch, me = core.epoch, core.replica.key.node_id
        begun_ms = self._driver.now_monotonic_ms()
        await self._command(lambda waiting: TransferLeadership(waiting, target), deadline_s)
        spent_s = (self._driver.now_monotonic_ms() - begun_ms) / 1000
        try:
            async with asyncio.timeout(max(deadline_s - spent_s, 0)):
                while core.epoch <= epoch or core.leader_id < 0:
                    await self._driver.role_change()
        except TimeoutError as failure:
            raise RetryLater(
                f"this node gave up leadership, but no leader is known after {deadline_s:g} s: "
                "check the quorum, then repeat this at its leader"
            ) from failure
        leader_id = core.leader_id
        if leader_id == me if node_id is None else leader_id != node_id:
            wanted = "another node" if node_id is None else f"node {node_id}"
            raise Conflict(
                f"node {leader_id} won the election in epoch {core.epoch} and leads now, not "
                f"{wanted}: hand leadership over again if {wanted} is to lead",
                reason="NOT_TRANSFERRED",
            )

    async def accept_cut(self, *, deadline_s: float) -> None:
        """Let this node vote again although its tail was cut: records that only it had are lost."""
        await self._command(AcceptCut, deadline_s)

    def can_stop(self, node_id: int) -> CanStop:
        """Decide whether the other voters are enough. NotFound: the leader knows no such node."""
        self._check_leads()
        known = self._driver.core.describe()
        if node_id not in {each.key.node_id for each in (*known.voters, *known.observers)}:
            raise NotFound(f"the quorum knows no node {node_id}: check the number")
        return can_stop(known, node_id, self._driver.now_monotonic_ms())

    async def check_feature_level(
        self, level: int, finalised: int, *, observers_upgraded: bool, deadline_s: float
    ) -> None:
        """Return if `level` may be finalised. The levels are requested now from every voter, and
        from those observers whose address is known; `observers_upgraded`: the admin confirms that
        the other observers know it.

        Conflict: not all nodes know the level. RetryLater: a node did not answer.
        """
        self._check_leads()
        known = self._driver.core.describe()
        me = self._driver.core.replica.key.node_id
        reachable = {node_id for node_id, _, _ in self._driver.nodes()}
        voters = {each.key.node_id for each in known.voters}
        observers = {each.key.node_id for each in known.observers} - voters
        others = sorted((voters | observers & reachable) - {me})
        answers = await asyncio.gather(*(self._levels_of(each, deadline_s) for each in others))
        levels = {node_id: found for node_id, found in answers if found is not None}
        levels[me] = self._levels_known
        silent = sorted(set(others) - set(levels))
        unasked = () if observers_upgraded else tuple(sorted(observers - reachable - {me}))
        check_may_finalise(level, finalised, levels, unasked)
        if silent:
            raise RetryLater(
                f"the nodes {', '.join(map(str, silent))} did not report which feature levels they "
                "know, and would stop if they don't know this one: start them first, or remove "
                "those that are gone for good from the voters"
            )

    async def _levels_of(self, node_id: int, deadline_s: float) -> tuple[int, FeatureLevels | None]:
        deadline_ms = int(deadline_s * 1000)
        try:
            return node_id, await self._driver.feature_levels(node_id, deadline_ms=deadline_ms)
        except PeerFailedError:
            return node_id, None

    def _check_leads(self) -> None:
        """Raise unless this node leads: only the leader's state of the voters is up to date."""
        if self._driver.core.role is not Role.LEADER:
            raise self._not_leader()

    def _voter_key(self, node_id: int, directory_id: str | None) -> ReplicaKey:
        for key in self._driver.core.voters.keys:
            if key.node_id == node_id and directory_id in (None, key.directory_id):
                return key
        raise NotFound(f"node {node_id} is not a voter, or not with that directory id")

    async def _change(
        self, request: AddVoterRequest | RemoveVoterRequest, deadline_s: float
    ) -> None:
        try:
            async with asyncio.timeout(deadline_s + 1):
                response = (await self._driver.answer(request)).response
        except TimeoutError as error:
            raise OutcomeUnknown(
                "no answer in time: check the voters before trying again"
            ) from error
        assert isinstance(response, VoterChangeResponse)
        self._raise_for(response.error, response.message)

    async def _command(self, event: Callable[[Hashable], Event], deadline_s: float) -> None:
        waiting: asyncio.Future[tuple[Error, str]] = asyncio.get_running_loop().create_future()
        self._driver.feed(event(waiting))
        try:
            async with asyncio.timeout(deadline_s):
                error, message = await waiting
        except TimeoutError as failure:
            raise OutcomeUnknown(
                f"not done within {deadline_s:g} s, but it may still happen: check the quorum "
                "before trying again"
            ) from failure
        if error is Error.REQUEST_TIMED_OUT:
            raise RetryLater(message)
        self._raise_for(error, message)

    def _raise_for(self, error: Error, message: str) -> None:
        if error is Error.NONE:
            return
        if error is Error.NOT_LEADER_OR_FOLLOWER:
            raise self._not_leader()
        raise _error(error, message or error.name)

    def _not_leader(self) -> Conflict:
        leader_id = self._driver.core.leader_id
        where = f"node {leader_id}" if leader_id >= 0 else "the leader; none is known at present"
        return Conflict(
            f"this node does not lead the metadata quorum: ask {where}",
            reason="NOT_LEADER",
            ask_node=leader_id if leader_id >= 0 else None,
        )


def can_stop(known: DescribeQuorumResponse, node_id: int, now_ms: int) -> CanStop:
    """Decide from the leader's state of each voter whether a node can stop. Pure."""
    voters = {replica.key.node_id: replica for replica in known.voters}
    if node_id not in voters:
        return CanStop(True, f"node {node_id} is not a voter")
    others = [replica for replica in known.voters if replica.key.node_id != node_id]
    if not others:
        return CanStop(
            False,
            f"node {node_id} is the only voter: stopping it stops the quorum, and nothing is "
            "recorded until it runs again",
        )
    needed = len(voters) // 2 + 1
    alive = _keep_up(known, others, now_ms)
    if len(alive) >= needed:
        return CanStop(True, f"{len(alive)} other voters keep up, {needed} are needed")
    if len(others) < needed:
        return CanStop(
            False,
            f"both voters are needed: stopping node {node_id} stops the quorum until it runs "
            "again; of three voters, one may stop",
        )
    behind = sorted(replica.key.node_id for replica in others if replica not in alive)
    return CanStop(
        False,
        f"without node {node_id} only {len(alive)} of {needed} needed voters keep up; "
        f"behind or silent: {behind}",
    )


def check_may_remove(known: DescribeQuorumResponse, node_id: int, now_ms: int) -> None:
    """Check that the voters without `node_id` could still commit records, this change included;
    Conflict if not. Pure.
    """
    others = [replica for replica in known.voters if replica.key.node_id != node_id]
    alive = _keep_up(known, others, now_ms)
    needed = len(others) // 2 + 1
    if others and len(alive) < needed:
        behind = sorted(replica.key.node_id for replica in others if replica not in alive)
        raise Conflict(
            f"without node {node_id} the quorum has {len(others)} voters, {needed} of which are "
            f"needed, and {len(alive)} keep up: it would stop. Behind or silent: {behind}; start "
            "them, or remove one of them first",
            reason="TOO_FEW_WOULD_REMAIN",
        )


def _keep_up(
    known: DescribeQuorumResponse, voters: list[ReplicaDescription], now_ms: int
) -> list[ReplicaDescription]:
    """The voters that were at the leader's log end lately."""
    return [
        replica
        for replica in voters
        if replica.key.node_id == known.leader_id
        or (
            replica.last_caught_up_ms >= 0
            and now_ms - replica.last_caught_up_ms <= CAUGHT_UP_WITHIN_MS
        )
    ]


def _error(error: Error, message: str) -> StrandlineError:
    match error:
        case Error.DUPLICATE_VOTER:
            return AlreadyExists(message)
        case Error.VOTER_NOT_FOUND:
            return NotFound(message)
        case Error.INVALID_REQUEST | Error.INVALID_VOTER_KEY:
            return InvalidRequest(message)
        case Error.REQUEST_TIMED_OUT:
            return OutcomeUnknown(message)
        case Error.BROKER_NOT_AVAILABLE:
            return RetryLater(message)
    return Conflict(message, reason=error.name)
