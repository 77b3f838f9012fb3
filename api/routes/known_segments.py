"""Looks up segments in the metadata, rows and tombstones, for reconciliations."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.admission import Context
from api.models.known_segments import KnownRequest, KnownSegments, KnownView

router = APIRouter(prefix="/segments", tags=["segments"])


@router.post("/known", summary="Look up segments of a listing in the metadata")
async def known_segments(context: Context, body: KnownRequest) -> KnownSegments:
    """Reads after a barrier: a segment that was copied before the request is not `never`. At most
    1,000 segments.
    """
    asked = [each.id() for each in body.segments]
    known = await context.collector.look_up(asked)
    return KnownSegments(
        segments=[KnownView.of_known(id_, each) for id_, each in zip(asked, known, strict=True)]
    )
