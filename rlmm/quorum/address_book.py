"""Where the nodes of the quorum listen, as far as this node knows. Pure.

From the settings, and from voter sets in the own log. A node that joins or was away long may lack
the leader there, or have it where it was: whoever names a leader says where it is, too (KIP-853).
"""

from __future__ import annotations

from collections.abc import Mapping

Address = tuple[str, int]
"""Host and port."""


class AddressBook:
    """One leader that others told of counts more than what is known of it, until it is not reached
    there.
    """

    def __init__(self, configured: Mapping[int, Address]) -> None:
        self._known = dict(configured)
        self._told: tuple[int, Address] | None = None

    def of(self, node_id: int) -> Address | None:
        """None: not known."""
        if self._told is not None and self._told[0] == node_id:
            return self._told[1]
        return self._known.get(node_id)

    def everybody(self) -> dict[int, Address]:
        """By node id, in ascending order."""
        return dict(sorted((self._known | dict([self._told] if self._told else ())).items()))

    def voters(self, found: Mapping[int, Address]) -> None:
        """What a voter set in the own log says."""
        self._known |= found

    def told(self, leader_id: int, address: Address) -> bool:
        """Somebody names the leader; whether that is news."""
        if self.of(leader_id) == address:
            return False
        self._told = (leader_id, address)
        return True

    def not_reached(self, node_id: int) -> bool:
        """No connection; whether another address of this node is tried next."""
        if self._told is None or self._told[0] != node_id or node_id not in self._known:
            return False
        self._told = None
        return True
