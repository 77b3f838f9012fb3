"""Limits of the nodes of a world, as its seed draws them."""

from __future__ import annotations

from random import Random

from rlm.control.surroundings import CopyLimits


def drawn_limits(random: Random) -> CopyLimits:
    """Limits for copies, retention and deletion."""
    choose = random.choice
    return CopyLimits(
        scan_interval_s=choose((1.0, 3.0)),
        copies_parallel_max=choose((1, 2, 4)),
        part_bytes=choose((200, 1_000, 1 << 20)),
        upload_deadline_s=choose((20.0, 60.0)),
        upload_margin_s=30.0,
        stall_deadline_s=15.0,
        propose_deadline_s=choose((2.0, 5.0)),
        propose_attempts_max=3,
        finish_deadline_s=60.0,
        store_deadline_s=20.0,
        backoff_max_s=20.0,
        corrupt_retry_s=30.0,
        retention_interval_s=choose((4.0, 10.0)),
        retention_max_percent=100.0,
        delete_delay_s=choose((0.0, 10.0, 40.0)),
        clock_check_interval_s=60.0,
    )
