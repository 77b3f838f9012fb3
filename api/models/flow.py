"""How fast the node that is asked moves bytes to and from the stores."""

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
        description="Bytes a second; null: without a limit.",
        examples=[52_428_800],
    ),
]


class RatesView(Wire):
    """To the stores, and from them."""

    copy_bytes_per_s: Rate
    read_bytes_per_s: Rate

    @classmethod
    def of(cls, rates: Rates) -> RatesView:
        """Map."""
        return cls(copy_bytes_per_s=rates.copy_bytes_per_s, read_bytes_per_s=rates.read_bytes_per_s)

    def rates(self) -> Rates:
        """Map."""
        return Rates(self.copy_bytes_per_s, self.read_bytes_per_s)


class LimitsRequest(RatesView):
    """All limits of the node, and those of single topics within them."""

    topics: Annotated[dict[str, RatesView], Field(max_length=LIMITED_TOPICS_MAX)]

    def limits(self) -> FlowLimits:
        """Map."""
        return FlowLimits(
            self.rates(), {topic: rates.rates() for topic, rates in self.topics.items()}
        )


class LimitsView(LimitsRequest):
    """What holds on the node that answers."""

    node_id: Annotated[int, Field(examples=[1])]

    @classmethod
    def of_node(cls, limits: FlowLimits, node_id: int) -> LimitsView:
        """Map."""
        return cls(
            node_id=node_id,
            copy_bytes_per_s=limits.node.copy_bytes_per_s,
            read_bytes_per_s=limits.node.read_bytes_per_s,
            topics={topic: RatesView.of(rates) for topic, rates in limits.topics.items()},
        )
