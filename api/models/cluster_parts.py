"""The nodes' parts in a view of the whole cluster, and the nodes without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from api.http.asking_all import NodeAnswer
from api.metrics.metrics import Silence
from api.models.base import Wire


class NodePartView(Wire):
    """A node's part in a view of the whole cluster."""

    node: Annotated[int, Field(examples=[3])]
    answered: Annotated[
        bool, Field(description="False: the node's part is missing in this answer.")
    ]
    reason: Annotated[
        Silence | None,
        Field(
            description="Why the part is missing. `fenced`, `stopped`: the node was not asked; "
            "`unreachable`: nothing could be sent; `timeout`: no answer within "
            "`http.view_timeout_s`; `refused`: the node refuses this caller or node; "
            "`other_release`: its release does not have this view; `failed`: any other "
            "error."
        ),
    ]
    text: Annotated[str | None, Field(description="The reason in a sentence.")]
    as_of_ms: Annotated[
        int | None, Field(description="Time of the part, by the clock of the queried node.")
    ]
    metadata_offset: Annotated[
        int | None, Field(description="The part is valid as of this metadata offset.")
    ]

    @classmethod
    def all_of(cls, told: Sequence[NodeAnswer[Any]]) -> list[NodePartView]:
        """The parts of all nodes, by node id."""
        return [
            cls.of(
                each,
                node=each.node_id,
                answered=each.part is not None,
                reason=each.silence,
                as_of_ms=None if each.as_of_ms is None else each.as_of_ms - _age_ms(each.part),
            )
            for each in told
        ]


class Surveyed(Wire):
    """A part of a view for which a node may use facts that it collected a moment ago."""

    survey_age_ms: Annotated[int, Field(description="Milliseconds since the facts were collected.")]


def _age_ms(part: object) -> int:
    return part.survey_age_ms if isinstance(part, Surveyed) else 0
