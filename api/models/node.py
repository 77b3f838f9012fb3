"""Kill switches of the queried node."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StringConstraints

from api.models.base import Wire
from rlm.node_files.kill_switches import WHY_CHARACTERS_MAX

Why = Annotated[
    str,
    StringConstraints(max_length=WHY_CHARACTERS_MAX),
    Field(
        description="Reason, shown to everyone who reads the state.",
        examples=["the bucket is being moved"],
    ),
]


class SwitchRequest(Wire):
    """The state to set a switch to."""

    paused: StrictBool
    why: Why = ""


class PauseView(Wire):
    """A pause in force."""

    since_ms: int
    by: Annotated[str, Field(examples=["alice"])]
    why: str


class SwitchesView(Wire):
    """Kill switches of the queried node; null: the work is not paused."""

    node_id: Annotated[int, Field(examples=[1])]
    copying: PauseView | None
    deleting: PauseView | None
    copies_in_flight: Annotated[
        int, Field(examples=[0], description="Copies under way; a pause lets them finish.")
    ]
