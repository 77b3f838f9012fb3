"""How simulations of nodes are run: limits that short runs reach, and a failure names its seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import pytest

from rlmm.apply import claims as apply_claims
from rlmm.apply import purge as apply_purge
from rlmm.rows import reads as row_reads
from tests.rlmm import recomputed_state


def set_small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short run sees purges, and cuts that an admin has to allow.

    The auditor reads the same segment rows over and over, so their decoding is remembered.
    """
    remembered = lru_cache(10_000)(row_reads.decode_segment_row)
    monkeypatch.setattr(row_reads, "decode_segment_row", remembered)
    monkeypatch.setattr(recomputed_state, "decode_segment_row", remembered)
    monkeypatch.setattr(apply_purge, "TOMBSTONE_KEPT_MS", 24 * 3_600_000)
    monkeypatch.setattr(apply_claims, "LINEAGE_CUT_OFFSETS_MAX", 15)


@contextmanager
def seed_named(seed: int) -> Iterator[None]:
    """An invariant that breaks within is told with the seed."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
