"""The addresses of the quorum's nodes, as far as this node knows them. Pure.

They come from the settings and from voter sets in the own log. A node that joins or was away long
may lack the leader's there, or have an old one: messages that name a leader carry its address
(KIP-853).
"""

from __future__ import annotations

from collections.abc import Mapping

Address = tuple[str, int]
"""Host and port."""


class AddressBook:
    """A leader's address told by others counts more than the known one, until it fails."""

    def __init__(self, configured: Mapping[int, Address]) -> None:
        self._known = dict(configured)
        self._told: tuple[int, Address] | None = None

    def of(self, node_id: int) -> Address | None:
        """The address of a node; None if it is unknown."""
        if self._told is not None and self._told[0] == node_id:
            return self._told[1]
        return self._known.get(node_id)

    def everybody(self) -> dict[int, Address]:
        """All addresses by node id, ascending."""
        return dict(sorted((self._known | dict([self._told] if self._told else ())).items()))

    def voters(self, found: Mapping[int, Address]) -> None:
        """Take the addresses of a voter set in the own log."""
        self._known |= found

    def told(self, leader_id: int, address: Address) -> bool:
        """Take a leader's address from a message; True if it is news."""
        if self.of(leader_id) == address:
            return False
        self._told = (leader_id, address)
        return True

    def not_reached(self, node_id: int) -> bool:
        """No connection; True if another address of this node is tried next."""
        if self._told is None or self._told[0] != node_id or node_id not in self._known:
            return False
        self._told = None
        return True
