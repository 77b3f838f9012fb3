"""Pages of a list that ascends."""

from __future__ import annotations

from collections.abc import Iterator

from api.http.api_limits import SCAN_ITEMS_PER_SLICE
from api.http.listing import Key, first_after
from tests.api.fake_ambient import no_pause


def key(item: int) -> Key:
    return (item,)


async def test_a_page_ends_at_its_limit_and_says_whether_there_is_more() -> None:
    assert await first_after(range(5), key, None, 5, no_pause) == ([0, 1, 2, 3, 4], False)
    assert await first_after(range(5), key, None, 2, no_pause) == ([0, 1], True)
    assert await first_after(range(5), key, (1,), 2, no_pause) == ([2, 3], True)
    assert await first_after(range(5), key, (4,), 2, no_pause) == ([], False)


async def test_what_does_not_match_is_no_more() -> None:
    found = await first_after(range(9), key, None, 2, no_pause, lambda item: item in (3, 7))
    assert found == ([3, 7], False)


async def test_a_page_looks_at_one_item_behind_it_and_no_further() -> None:
    seen: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            seen.append(number)
            yield number

    await first_after(items(), key, None, 3, no_pause)
    assert seen == [0, 1, 2, 3]


async def test_a_long_scan_lets_others_run() -> None:
    turns = 0

    async def pause(seconds: float) -> None:
        nonlocal turns
        turns += 1
        assert seconds == 0

    await first_after(range(4 * SCAN_ITEMS_PER_SLICE), key, None, 1, pause, lambda _: False)
    assert turns == 4
