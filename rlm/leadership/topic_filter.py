"""Selects the tiered topics by `topics.include` and `topics.exclude`, as shell patterns.

Without an `include` no topic is tiered; internal topics never are.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

INTERNAL_TOPIC_PREFIX = "__"
"""The start of the names of Kafka's own topics: `__consumer_offsets`, `__transaction_state`,
`__remote_log_metadata`, `__share_group_state`.
"""


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topic names or patterns (`orders`, `logs.*`); `exclude` takes precedence."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def why_left_out(self, topic: str) -> str | None:
        """A sentence with the setting to change; None if the topic is tiered."""
        if is_internal(topic):
            return f"{topic} is an internal topic; internal topics are never tiered"
        for pattern in self.exclude:
            if fnmatchcase(topic, pattern):
                return f"topics.exclude has {pattern!r}, which names {topic}"
        if not any(fnmatchcase(topic, pattern) for pattern in self.include):
            return f"no pattern in topics.include names {topic}, nor does a setting of the cluster"
        return None


def is_internal(topic: str) -> bool:
    """True for topics that Kafka or Strandline keep for themselves."""
    return topic.startswith(INTERNAL_TOPIC_PREFIX)
