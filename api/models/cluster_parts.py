"""Views of the whole cluster: the nodes that have a part in one, and those that have none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from api.http.asking_all import Told
from api.metrics.metrics import Silence
from api.models.base import Wire


class NodePartView(Wire):
    """A node's part in a view of the whole cluster."""

    node: Annotated[int, Field(examples=[3])]
    answered: Annotated[bool, Field(description="False: its part is missing in this answer.")]
    reason: Annotated[
        Silence | None,
        Field(
            description="Why: `fenced` and `stopped` nodes are not asked; `unreachable`: nothing "
            "was sent; `timeout`: no answer within `http.view_timeout_s`; `refused`: it does not "
            "let this caller or node; `other_release`: it knows no such view; `failed`: the rest."
        ),
    ]
    text: Annotated[str | None, Field(description="The same in a sentence.")]
    as_of_ms: Annotated[
        int | None, Field(description="Time of its part, by the clock of the node asked.")
    ]
    metadata_offset: Annotated[
        int | None, Field(description="Metadata offset at which its part is true.")
    ]

    @classmethod
    def all_of(cls, told: Sequence[Told[Any]]) -> list[NodePartView]:
        """All of them, by node id."""
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
    """A part of a view that a node may make from facts that it gathered a moment ago."""

    survey_age_ms: Annotated[int, Field(description="Milliseconds since its facts were gathered.")]


def _age_ms(part: object) -> int:
    return part.survey_age_ms if isinstance(part, Surveyed) else 0
