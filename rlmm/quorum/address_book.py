"""The addresses of the quorum's nodes, as far as this node knows them. Pure.

They come from the settings and from voter sets in this node's log. A node that joins, or was down
for long, may have no address of the leader there, or an old one: messages that name a leader also
contain its address (KIP-853).
"""

from __future__ import annotations

from collections.abc import Mapping

Address = tuple[str, int]
"""Host and port."""


class AddressBook:
    """Addresses by node id. A leader's address from a message is preferred to the configured one
    until a connection to it fails.
    """

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
        """Take the addresses of a voter set in this node's log."""
        self._known |= found

    def told(self, leader_id: int, address: Address) -> bool:
        """Take a leader's address from a message; True if it was not known."""
        if self.of(leader_id) == address:
            return False
        self._told = (leader_id, address)
        return True

    def not_reached(self, node_id: int) -> bool:
        """Note a failed connection; True if the node has a different address to try next."""
        if self._told is None or self._told[0] != node_id or node_id not in self._known:
            return False
        self._told = None
        return True
