"""The named stores."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from api.models.base import Wire


class StoreView(Wire):
    """A store that the settings of the node that answers name, or that segments name."""

    name: Annotated[str, Field(examples=["main"])]
    configured: Annotated[bool, Field(description="False: its segments cannot be read here.")]
    default: Annotated[bool, Field(description="New copies go here.")]
    problem: Annotated[str | None, Field(description="Why it cannot be used now.")]
    segments: Annotated[int, Field(description="Whose metadata names it.", examples=[120])]
    size_bytes: Annotated[int, Field(description="Of their `.log` files.")]


class StoresView(Wire):
    """All of them, by name."""

    stores: list[StoreView]
