"""The named stores: what is in them, by the metadata."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter

from api.admission import Context
from api.models.stores import StoresView, StoreView
from rlm.node_problem import ProblemArea
from rlm.store_usage import StoreUsage, store_usage

router = APIRouter(prefix="/stores", tags=["stores"])


@router.get("", summary="The named stores, and how many segments are in each")
async def list_stores(context: Context) -> StoresView:
    """Counted by the metadata, which takes a few seconds for a million segments."""
    usage = await store_usage(context.manager, partial(context.sleep, 0))
    problems = {
        each.name: each.text
        for each in context.rlm.node_problems()
        if each.area is ProblemArea.STORE
    }
    none = StoreUsage()
    return StoresView(
        stores=[
            StoreView(
                name=name,
                configured=name in context.store_names,
                default=name == context.default_store,
                problem=problems.get(name),
                segments=usage.get(name, none).segments,
                size_bytes=usage.get(name, none).size_bytes,
            )
            for name in sorted({*usage, *context.store_names})
        ]
    )
