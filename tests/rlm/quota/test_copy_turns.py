"""Parts wait for reads that queue, in the order of coming, and can be cancelled while they do."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from rlm.quota import copy_turns
from rlm.quota.copy_turns import COPIED_PER_READ, CopyTurns

PART = 12 * 1024 * 1024


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> CopyTurns:
    return CopyTurns(clock)


async def steps() -> None:
    """All others have their turn."""
    for _ in range(8):
        await asyncio.sleep(0)


async def crowded(clock: Clock, turns: CopyTurns, reads: ExitStack) -> None:
    """A read waits for a second, and a part was just sent."""
    reads.enter_context(turns.read(0))
    clock.now += 1.0
    await turns.before(PART)


async def test_without_reads_parts_go_at_once(turns: CopyTurns) -> None:
    sending = [asyncio.create_task(turns.before(PART)) for _ in range(100)]
    await steps()
    assert all(each.done() for each in sending)


async def test_parts_wait_until_reads_have_moved_their_share_one_after_the_other(
    clock: Clock, turns: CopyTurns
) -> None:
    sent: list[str] = []

    async def send(name: str) -> None:
        await turns.before(PART)
        sent.append(name)

    with ExitStack() as reads:
        await crowded(clock, turns, reads)
        waiting = [asyncio.create_task(send(name)) for name in ("first", "second")]
        await steps()
        assert sent == []
        with turns.read(round(PART / COPIED_PER_READ)):
            pass
        await steps()
        assert sent == ["first"]
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert sent == ["first"]
    clock.now += 1.0
    await turns.before(PART)  # whoever left the line stands in nobody's way


async def test_a_read_that_is_given_up_pays_nothing_but_waits_no_more(
    clock: Clock, turns: CopyTurns
) -> None:
    with ExitStack() as reads:
        await crowded(clock, turns, reads)
        part = asyncio.create_task(turns.before(PART))
        with pytest.raises(ZeroDivisionError), turns.read(10 * PART):
            raise ZeroDivisionError
        await steps()
        assert not part.done()
    clock.now += 1.0  # no read is left
    await part


async def test_a_part_is_sent_after_its_longest_wait_whatever_reads_do(
    clock: Clock, turns: CopyTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_turns, "HELD_S_MAX", 0.001)
    with ExitStack() as reads:
        await crowded(clock, turns, reads)
        parts = [asyncio.create_task(turns.before(PART)) for _ in range(3)]
        done, waiting = await asyncio.wait(parts, timeout=60)
        assert (len(done), len(waiting)) == (3, 0)
