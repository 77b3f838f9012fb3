"""Whether the metadata knows segments, rows and tombstones both: a question of reconciliations."""

from __future__ import annotations

from fastapi import APIRouter

from api.http.admission import Context
from api.models.known_segments import KnownRequest, KnownSegments, KnownView

router = APIRouter(prefix="/segments", tags=["segments"])


@router.post("/known", summary="What the metadata knows of segments that a listing found")
async def known_segments(context: Context, body: KnownRequest) -> KnownSegments:
    """Looks behind a barrier: what was copied before the question is not `never`. At most 1,000."""
    asked = [each.id() for each in body.segments]
    known = await context.collector.look_up(asked)
    return KnownSegments(
        segments=[KnownView.of(id_, each) for id_, each in zip(asked, known, strict=True)]
    )
