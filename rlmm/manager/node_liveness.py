"""The task with which the quorum's leader records the registered nodes that have stopped fetching,
and those that came back (KIP-631's fencing, with the fetches of KIP-500 as heartbeats).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from kafka_formats.errors import StrandlineError
from rlmm.manager.time_passing import pause
from rlmm.metadata_log import LogDescription
from rlmm.records.control_records import NodeSilence
from rlmm.rows.nodes import Liveness, RegisteredNode

log = logging.getLogger(__name__)

LOOKS_PER_SILENCE = 4
LOOK_INTERVAL_MAX_S = 60.0
"""The longest pause between two checks: the core forgets an observer that has not fetched for five
times as long; the judge remembers it.
"""


@dataclass(slots=True)
class LivenessJudge:
    """Decides which nodes are silent, that is, do not fetch. Pure: the replica's description and
    its monotonic time are arguments.

    Invariant `silent_for_a_whole_silence`: a node is fenced only after `silence_max_s` without a
    fetch, during all of which this leader could have received one. That time begins when the leader
    takes over, when it checks again after it was suspended itself, and when the node registers. A
    leader that removed itself as a voter judges no node: there are no fetches of its own.
    """

    silence_max_s: float
    _epoch: int = -1
    _hears_since_s: float = 0.0
    _looked_s: float = 0.0
    _heard: dict[int, tuple[int, float]] = field(default_factory=dict)

    def judged(
        self, told: LogDescription, nodes: Iterable[RegisteredNode], now_s: float
    ) -> tuple[NodeSilence, ...]:
        """The records to propose now; none unless this replica leads."""
        if told.leader_id != told.node_id or not _votes(told):
            self._epoch = -1
            return ()
        was_away = now_s - self._looked_s > self.silence_max_s / 2
        if told.leader_epoch != self._epoch or was_away:
            self._epoch, self._hears_since_s = told.leader_epoch, now_s
            self._heard.clear()
        self._looked_s = now_s
        silent_s = _silences(told)
        return tuple(
            NodeSilence(node.node_id, node.boot_offset, told.leader_epoch, not node_is_fenced)
            for node in nodes
            if (node_is_fenced := node.liveness is Liveness.FENCED)
            or node.liveness is Liveness.LIVE
            if self._is_silent(node, silent_s, now_s) is not node_is_fenced
        )

    def _is_silent(
        self, node: RegisteredNode, silent_s: dict[tuple[int, str], float], now_s: float
    ) -> bool:
        known = self._heard.get(node.node_id)
        if known is None or known[0] != node.boot_offset:
            known = (node.boot_offset, now_s)
        silent = silent_s.get((node.node_id, str(node.directory_id)))
        heard_s = known[1] if silent is None else max(known[1], now_s - silent)
        self._heard[node.node_id] = (node.boot_offset, heard_s)
        if node.liveness is Liveness.FENCED:  # back only by a fetch
            return silent is None or silent > self.silence_max_s
        return now_s - max(self._hears_since_s, heard_s) > self.silence_max_s


def _votes(told: LogDescription) -> bool:
    return any(each.node_id == told.node_id for each in told.voters)


def _silences(told: LogDescription) -> dict[tuple[int, str], float]:
    """Seconds since the last fetch, by node id and directory; nodes that have not fetched from this
    leader are left out. A leader's own last fetch is now.
    """
    fetched = {
        (each.node_id, each.directory_id): each.last_fetch_ms
        for each in (*told.voters, *told.observers)
        if each.last_fetch_ms >= 0
    }
    now_ms = max(fetched.values(), default=0)
    return {who: (now_ms - at_ms) / 1000 for who, at_ms in fetched.items()}


class NodeLiveness:
    """The task that records silent nodes, one per node; it proposes only while this node leads."""

    def __init__(
        self,
        judge: LivenessJudge,
        describe: Callable[[], LogDescription],
        nodes: Callable[[], tuple[RegisteredNode, ...]],
        monotonic: Callable[[], float],
        propose: Callable[[NodeSilence, float], Awaitable[int]],
    ) -> None:
        self._judge = judge
        self._describe = describe
        self._nodes = nodes
        self._monotonic = monotonic
        self._propose = propose
        self._interval_s = min(judge.silence_max_s / LOOKS_PER_SILENCE, LOOK_INTERVAL_MAX_S)

    async def run(self) -> None:
        """Run as long as the node; after a failure the next check tries again."""
        while True:
            try:
                await self.look()
            except StrandlineError as error:
                log.info("the liveness of nodes is not recorded yet: %s", error)
            await pause(self._interval_s)

    async def look(self) -> None:
        """Judge, and propose the records one by one, each only if it is still true: the ones before
        may have taken long. A record that is not appended until the next check, as while leadership
        is transferred, is given up, and judged again.
        """
        for record in self._judged():
            if record not in self._judged():
                continue
            await self._propose(record, self._interval_s)
            if record.fenced:
                log.warning(
                    "node %d is fenced: it has not fetched the metadata log for %g s",
                    record.node_id, self._judge.silence_max_s,
                )  # fmt: skip
            else:
                log.info("node %d fetches the metadata log again", record.node_id)

    def _judged(self) -> tuple[NodeSilence, ...]:
        return self._judge.judged(self._describe(), self._nodes(), self._monotonic())
