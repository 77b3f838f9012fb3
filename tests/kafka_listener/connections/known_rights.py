"""Rights in topics without a broker to ask."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_listener.access.rights import ALL, RightsOrError, offset_error
from kafka_listener.protocol.error_codes import ErrorCode


@dataclass
class KnownRights:
    """Those of `told`; in other topics all. None: nobody could be asked."""

    told: dict[str, RightsOrError | None] = field(default_factory=dict)
    kept_back: frozenset[str] = frozenset()

    def allows(self, _client: object, topic: str | None) -> bool:
        return topic not in self.kept_back

    async def of(self, _client: object, topics: Iterable[str]) -> dict[str, RightsOrError]:
        found = {topic: self.told.get(topic, ALL) for topic in topics}
        return {topic: told for topic, told in found.items() if told is not None}

    async def refused(self, _client: object, topics: Iterable[str]) -> dict[str, ErrorCode]:
        told = await self.of(None, topics)
        errors = {topic: offset_error(told.get(topic)) for topic in topics}
        return {topic: error for topic, error in errors.items() if error}
