"""Fails or warns, as `failOnDataLoss` decides, if offsets that a query requested are gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_formats.errors import Conflict

SHOWN_MAX = 10

log = logging.getLogger("strandline.source")


def report_lost(lost: Sequence[str], *, fail: bool) -> None:
    """Raise Conflict(DATA_LOSS) that names topic and offsets, or a warning."""
    if not lost:
        return
    words = "; ".join(lost[:SHOWN_MAX])
    if len(lost) > SHOWN_MAX:
        words += f"; and {len(lost) - SHOWN_MAX} more"
    if fail:
        raise Conflict(
            f"{words}. Ask for offsets that exist, or set failOnDataLoss=false to read the rest "
            "without them",
            reason="DATA_LOSS",
        )
    log.warning("reading without lost offsets: %s", words)
