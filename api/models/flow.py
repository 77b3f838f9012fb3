"""Rate limits of a node's traffic to and from the stores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from api.http.validation import INT64_MAX
from api.models.base import Wire
from rlm.quota.flow_limits import LIMITED_TOPICS_MAX, FlowLimits, Rates

Rate = Annotated[
    StrictInt | None,
    Field(
        ge=1,
        le=INT64_MAX,
        description="Bytes per second; null: no limit.",
        examples=[52_428_800],
    ),
]


class RatesView(Wire):
    """Rates to the stores and from them."""

    copy_bytes_per_s: Rate
    read_bytes_per_s: Rate

    def rates(self) -> Rates:
        return Rates(self.copy_bytes_per_s, self.read_bytes_per_s)


class LimitsRequest(RatesView):
    """All limits of the node, and of single topics within them."""

    topics: Annotated[dict[str, RatesView], Field(max_length=LIMITED_TOPICS_MAX)]
    replaces_revision: Annotated[
        StrictInt | None,
        Field(
            ge=0,
            le=INT64_MAX,
            description="`revision` of the limits to replace: 409 if different ones are in force "
            "by then. Left out: replaces any limits.",
        ),
    ] = None

    def limits(self) -> FlowLimits:
        return FlowLimits(
            self.rates(), {topic: rates.rates() for topic, rates in self.topics.items()}
        )


class LimitsView(RatesView):
    """The limits in force on the queried node."""

    topics: dict[str, RatesView]
    revision: Annotated[
        int,
        Field(
            description="Number of changes since the node started; a change may name it in "
            "`replaces_revision`."
        ),
    ]
    node_id: Annotated[int, Field(examples=[1])]

    @classmethod
    def of_node(cls, limits: FlowLimits, revision: int, node_id: int) -> LimitsView:
        """The limits of the node and of its topics."""
        return cls.of(limits.node, node_id=node_id, revision=revision, topics=limits.topics)
