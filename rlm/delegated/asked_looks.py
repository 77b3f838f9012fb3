"""Looks at only the partitions that the broker's reads wait for.

After a partition's leader moved, none of its segments is read before a look at its directory
[LOSS-9]. A look at all partitions takes seconds where the broker has thousands; those that
consumers read are few.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Ambient

logger = logging.getLogger(__name__)

WAIT_S = 0.25
"""The longest time that a call waits for its look. The broker allows 0.5 s for a read, in one of a
few threads: while a look takes longer than this, as on a disk that hangs, and in the pause after
it, calls do not wait.
"""
PARTITIONS_PER_LOOK = 50
"""The most partitions of one look; each may have thousands of segments."""
ASKED_MAX = 10_000
"""The most partitions that wait for such a look. Further ones wait for the look at all partitions.
"""
PAUSE_S = 0.02
"""The shortest pause after a look. The pause is otherwise as long as the look took, so that the
looks at all partitions make progress, too.
"""
ROUND_S = 600.0
"""The longest round of the loop: after it the watchdog sees that the loop still runs."""

_Asked = dict[TopicIdPartition, asyncio.Future[None]]


def next_look(
    asked: Iterable[TopicIdPartition], is_unlooked: Callable[[TopicIdPartition], bool]
) -> tuple[TopicIdPartition, ...]:
    """The partitions of the next look, those asked for first. Pure."""
    return tuple(islice(filter(is_unlooked, asked), PARTITIONS_PER_LOOK))


async def ask_nobody(_tip: TopicIdPartition) -> None:
    """Return at once, for a node that has no such looks."""


@dataclass(slots=True)
class AskedLooks:
    """The loop of these looks, one per node. `look` looks at some partitions; `is_unlooked` is True
    for a partition that no look has read since its leadership was announced. `_asked` are the
    partitions that wait, in the order of the calls; `_under_way` those of the present look.
    `_began_s` is the start of the present look; after one longer than WAIT_S it stays set until the
    pause ends.
    """

    look: Callable[[Collection[TopicIdPartition]], Awaitable[None]]
    is_unlooked: Callable[[TopicIdPartition], bool]
    ambient: Ambient
    _asked: _Asked = field(default_factory=dict)
    _under_way: _Asked = field(default_factory=dict)
    _began_s: float | None = None
    _has_news: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, tip: TopicIdPartition) -> None:
        """Ask for a look at this partition; return after it, or when it takes too long."""
        ended = self._under_way.get(tip) or self._asked.get(tip)
        if ended is None:
            if len(self._asked) >= ASKED_MAX:
                return
            ended = self._asked[tip] = asyncio.get_running_loop().create_future()
            self._has_news.set()
        if not self._is_slow:
            await asyncio.wait({ended}, timeout=WAIT_S)

    @property
    def _is_slow(self) -> bool:
        began_s = self._began_s
        return began_s is not None and self.ambient.monotonic() - began_s > WAIT_S

    async def run(self) -> None:
        """Look at the requested partitions, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ROUND_S):
                    await self._has_news.wait()
            except TimeoutError:
                pass
            await self.ambient.sleep(await self._look())
            self._began_s = None

    async def _look(self) -> float:
        """Look once, if a call waits. Returns the length of the pause after it, in seconds."""
        tips = next_look(self._asked, self.is_unlooked)
        began_s = self.ambient.monotonic()
        self._under_way = {tip: self._asked.pop(tip) for tip in tips}
        if len(tips) < PARTITIONS_PER_LOOK:  # else the later ones were not filtered
            _end(self._asked)
            self._has_news.clear()
        try:
            if tips:
                self._began_s = began_s
                await self.look(tips)
        except StrandlineError as error:  # the looks at all report it as a problem
            logger.debug("a look that reads waited for failed: %s", error)
        except Exception:
            logger.exception("a look that reads waited for failed; they ask again")
        finally:
            _end(self._under_way)
        if not self._is_slow:
            self._began_s = None
        return max(PAUSE_S, self.ambient.monotonic() - began_s)


def _end(asked: _Asked) -> None:
    """Let all of these calls continue: each checks for itself if the look found out enough."""
    for ended in asked.values():
        if not ended.done():
            ended.set_result(None)
    asked.clear()
