"""The cache's bound is in bytes."""

from __future__ import annotations

from rlm.data_plane.chunk_cache import ByteBoundedCache


def test_the_longest_unused_goes_first() -> None:
    cache: ByteBoundedCache[str, int] = ByteBoundedCache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert cache.bytes_held == 8


def test_a_value_over_the_bound_is_not_kept() -> None:
    cache: ByteBoundedCache[str, int] = ByteBoundedCache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 11)
    assert (cache.get("a"), cache.get("b")) == (1, None)


def test_a_new_value_takes_the_weight_of_the_old_one() -> None:
    cache: ByteBoundedCache[str, int] = ByteBoundedCache(10)
    cache.put("a", 1, 8)
    cache.put("a", 2, 3)
    assert cache.get("a") == 2
    assert cache.bytes_held == 3
