"""A named store as the remote log manager uses it: the port, and the prefix of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_formats.errors import InvalidRequest, Refused
from rsm_backends.store import ObjectStore


@dataclass(frozen=True, slots=True)
class TierStore:
    """One entry of `[stores.NAME]`, opened. `prefix` is put in front of every key."""

    name: str
    store: ObjectStore
    prefix: str


@dataclass(frozen=True, slots=True)
class TierStores:
    """All stores of this node. Copies go to `default`; segments name the store they are in."""

    by_name: Mapping[str, TierStore]
    default_name: str

    def __post_init__(self) -> None:
        """Refuse a default that is not there."""
        if self.default_name not in self.by_name:
            raise InvalidRequest(
                f"{self.default_name!r} is not among [stores]: {sorted(self.by_name)}",
                field="default_store",
            )

    @property
    def default(self) -> TierStore:
        """Where new segments go."""
        return self.by_name[self.default_name]

    def named(self, name: str) -> TierStore:
        """The store that a segment's custom metadata names."""
        store = self.by_name.get(name)
        if store is None:
            raise Refused(
                f"a segment is in the store {name!r}, which this node does not have: add "
                f"[stores.{name}] to its settings (configured: {', '.join(sorted(self.by_name))})"
            )
        return store
