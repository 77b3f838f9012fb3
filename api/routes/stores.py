"""The named stores: their locations, and their contents by the metadata."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query

from api.http.admission import Context
from api.models.stores import StoreLocationView, StoresView, StoreView
from rlm.control.node_problem import ProblemArea
from rlm.stores.store_usage import StoreUsage, store_usage

router = APIRouter(prefix="/stores", tags=["stores"])


@router.get("", summary="The named stores, and how many segments are in each")
async def list_stores(
    context: Context,
    counted: Annotated[
        bool,
        Query(description="False: only the stores of the settings, without counts."),
    ] = True,
) -> StoresView:
    """The counts are from the metadata, and take a few seconds for a million segments."""
    usage = await store_usage(context.manager, partial(context.sleep, 0)) if counted else {}
    problems = {
        each.name: each.text
        for each in context.rlm.node_problems()
        if each.area is ProblemArea.STORE
    }
    none = StoreUsage() if counted else None
    stores = []
    for name in sorted({*usage, *context.store_names}):
        used = usage.get(name, none)
        stores.append(
            StoreView(
                name=name,
                configured=name in context.store_names,
                default=name == context.default_store,
                problem=problems.get(name),
                location=StoreLocationView.of_location(context.store_locations.get(name)),
                segments=None if used is None else used.segments,
                size_bytes=None if used is None else used.size_bytes,
            )
        )
    return StoresView(stores=stores)
