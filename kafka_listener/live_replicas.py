"""The read replicas that clients are told of: this one, and each other that is registered and
fetches the metadata log. Pure: the time is handed in.

All replicas hear it from the same leader, so they tell clients the same within seconds, and a
partition is served by one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka_listener.virtual_nodes import REPLICA_IDS, Replica, VirtualNodes


@dataclass(slots=True)
class LiveReplicas:
    """One per replica. A replica that is silent for longer than `silence_max_s` is left out, until
    it fetches again.
    """

    own: Replica
    silence_max_s: float
    nodes: VirtualNodes = field(init=False)
    _registered: dict[int, Replica] = field(default_factory=dict)
    _live: set[int] = field(default_factory=set)
    _leader_epoch: int = -1
    _leads_since_s: float = 0.0

    def __post_init__(self) -> None:
        self.nodes = VirtualNodes.alone(self.own)

    @property
    def silent(self) -> tuple[Replica, ...]:
        """The registered ones that clients are not told of."""
        live = {each.node_id for each in self.nodes.replicas}
        return tuple(self._registered[each] for each in sorted(self._registered.keys() - live))

    def registered(self, others: Iterable[Replica]) -> None:
        """Take the replicas that the metadata log names now; this one may be among them. One whose
        id no virtual id is made of serves nobody, and is left out.
        """
        self._registered = {
            each.node_id: each
            for each in others
            if each.node_id != self.own.node_id and 0 <= each.node_id < REPLICA_IDS
        }
        self._tell()

    def heard(self, leader_epoch: int, silent_ms: Mapping[int, int], now_s: float) -> None:
        """Take a leader's word: for how long each node has not fetched from it.

        A new leader knows nobody yet, so a node that it does not name stays what it was for a
        whole silence: many at once would look gone for the leader's sake.
        """
        if leader_epoch < self._leader_epoch:
            return
        if leader_epoch > self._leader_epoch:
            self._leader_epoch, self._leads_since_s = leader_epoch, now_s
        is_new = now_s - self._leads_since_s <= self.silence_max_s
        for node_id in self._registered:
            silent = silent_ms.get(node_id)
            if silent is None:
                if not is_new:
                    self._live.discard(node_id)
            elif silent <= self.silence_max_s * 1000:
                self._live.add(node_id)
            else:
                self._live.discard(node_id)
        self._tell()

    def _tell(self) -> None:
        self._live &= self._registered.keys()
        others = (self._registered[each] for each in self._live)
        replicas = sorted((self.own, *others), key=lambda each: each.node_id)
        self.nodes = VirtualNodes(self.own, tuple(replicas))
