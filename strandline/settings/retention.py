"""The settings of retention and deletion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from strandline.settings.fields import PositiveSeconds, Section


class RetentionSettings(Section):
    """Retention of tiered segments, and their deletion."""

    source: Literal["policy", "topic"] = Field(
        default="policy",
        description="`policy`: the tier keeps everything unless a topic's policy sets a retention. "
        "`topic`: if the policy sets none, the topic's own `retention.ms` and "
        "`retention.bytes` in Kafka apply. The same on each node.",
    )

    interval_s: PositiveSeconds = Field(
        default=60.0, description="Pause between two passes of retention."
    )
    max_percent: Annotated[float, Field(gt=0.0, le=100.0)] = Field(
        default=50.0,
        description="Largest share that a pass takes of a partition's tiered bytes (ten segments "
        "or more, or any number that a later leader's log lacks), or of the node's (a "
        "hundred or more); a pass with more stops until it is accepted.",
    )
    trash_s: Annotated[float, Field(ge=0, le=366 * 86_400)] = Field(
        default=86_400.0,
        description="Time that expired segments stay in the trash, hidden from readers, where "
        "`strandline trash restore` brings them back, and that segments stay which a later "
        "leader's log lacks; 0: no trash, for duties to erase.",
    )
    delete_delay_s: PositiveSeconds = Field(
        default=60.0,
        description="Time that objects are kept after their segment is marked, for running "
        "readers.",
    )
    deletion_settle_s: PositiveSeconds = Field(
        default=60.0,
        description="Time after the grace in which only the node that claimed a deleted topic's "
        "partition last deletes it; then any node does.",
    )
    clock_hold_s: Annotated[float, Field(ge=0, le=366 * 86_400)] = Field(
        default=259_200.0,
        description="Longest wait after the clocks of node and store were set ahead together, or "
        "the node was down for more than ten minutes: nothing is deleted for as long "
        "as that was, at most for this long; 0: no such wait.",
    )
