"""The node that is asked: its kill switches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from api.models.base import Wire
from rlm.node_files.kill_switches import WHY_CHARACTERS_MAX, Pause

Why = Annotated[
    str,
    StringConstraints(max_length=WHY_CHARACTERS_MAX),
    Field(description="For whoever finds it paused.", examples=["the bucket is being moved"]),
]


class SwitchRequest(Wire):
    """How a switch is to stand."""

    paused: StrictBool
    why: Why = ""


class PauseView(Wire):
    """A pause that stands."""

    since_ms: int
    by: Annotated[str, Field(examples=["alice"])]
    why: str

    @classmethod
    def of(cls, pause: Pause | None) -> PauseView | None:
        """Map."""
        if pause is None:
            return None
        return cls(since_ms=pause.since_ms, by=pause.by, why=pause.why)


class SwitchesView(Wire):
    """The kill switches of the node that answers; null where the work goes on."""

    node_id: Annotated[int, Field(examples=[1])]
    copying: PauseView | None
    deleting: PauseView | None
    copies_in_flight: Annotated[
        int, Field(examples=[0], description="Copies under way; a pause lets them finish.")
    ]
