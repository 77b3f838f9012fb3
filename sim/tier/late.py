"""Late uploads and slow readers: deletions are due minutes after their mark, with clocks and
requests that keep the bounds, and no collector tidies up.

An upload of an attempt that fails is still under way: it arrives right behind the first delete of
the attempt's clean-up. A reader learns from its node where records are, and asks for them much
later, at most as long after the segment's mark as readers are given.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import CopyLimits
from rlm.data_plane.read_request import RecordsRequest, SegmentPiece
from rlm.fetch.resolved_reads import ViewResolver
from rlm.format.object_keys import parse_segment_key, segment_keys
from rsm_backends.store_wrapper import PortCall
from sim.tier.faults import RequestFate

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

SEEDS_PER_LATE_ONE = 4
WITHOUT = frozenset({"store_very_late", "clock_jump", "pause_at_step", "collect"})
"""Faults, and a deed of admins, that excuse what is late or left over."""
PERIOD_MS = 6_000
UNDER_WAY_MS_MAX = 20_000
"""Shorter than clean-ups wait behind the deadline of an attempt, less the error of two clocks."""
REFUSED_MS = 60_000
HANGS_PERMILLE = 60
UPLOADS = frozenset({"put", "start_multipart", "put_part", "complete_multipart"})
SLACK_MS = 2_000
"""A process counts the readers' time from when it first sees a mark."""


@dataclass(slots=True)
class _UnderWay:
    """An upload that has not arrived yet."""

    arrive: Callable[[], None]
    is_over: bool = False

    def __call__(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.arrive()


class Late:
    """Requests and readers that are late. `is_on` None: in some seeds. `hung` counts uploads that
    arrived behind a delete, `outlived` readers that asked for what was marked meanwhile.
    """

    def __init__(self, world: World, *, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"{world.seed} late")
        drawn = not random.randrange(SEEDS_PER_LATE_ONE)
        self.is_on = self._goes_on = drawn if is_on is None else is_on
        self._delay_s = random.choice((90.0, 180.0, 300.0))
        self._under_way: dict[str, list[_UnderWay]] = {}
        self._refused_until_ms: dict[str, int] = {}
        self.hung = self.outlived = 0

    @property
    def without(self) -> frozenset[str]:
        """Kinds of faults and deeds that this world does not have."""
        return WITHOUT if self.is_on else frozenset()

    def limits(self, limits: CopyLimits) -> CopyLimits:
        """Limits of the nodes, which give readers minutes."""
        return replace(limits, delete_delay_s=self._delay_s) if self.is_on else limits

    def begin(self) -> None:
        """Let somebody read slowly now and then."""
        if not self._goes_on:
            return
        world, random = self._world, self._random
        ups = [machine.up for machine in world.machines if machine.up is not None]
        if ups and world.brokers.partitions:
            process, partition = random.choice(ups), random.choice(world.brokers.partitions)
            end = max(replica.end for replica in partition.replicas.values())
            reader = _SlowReader(world, process, random.randrange(round(self._delay_s * 1000)))
            request = RecordsRequest(random.randrange(end + 1), max_bytes=500)
            world.loop.spawn(process.life, reader.read(partition.tip, request))
        world.schedule.after(1 + random.randrange(2 * PERIOD_MS), self.begin)

    def stop(self) -> None:
        """Nothing more is late."""
        self._goes_on = False

    # ---- uploads

    def fate(self, call: PortCall, drawn: RequestFate) -> RequestFate:
        """The fate of a request: `drawn`, or no answer, or none any more of this attempt."""
        if not self._goes_on or call.operation not in UPLOADS:
            return drawn
        now_ms, random, key = self._world.schedule.now_ms, self._random, call.key
        if now_ms < self._refused_until_ms.get(key, 0):
            return RequestFate(1 + random.randrange(500), refused=True)
        is_ours = parse_segment_key(self._world.prefix, key) is not None
        if drawn.refused or not is_ours or random.randrange(1000) >= HANGS_PERMILLE:
            return drawn
        self._refused_until_ms[key] = now_ms + REFUSED_MS
        self._under_way.setdefault(key, [])
        return RequestFate(UNDER_WAY_MS_MAX, given_up_ms=1 + random.randrange(3_000))

    def send(self, call: PortCall, fate: RequestFate, arrive: Callable[[], None]) -> None:
        """Let a request arrive in its time, or behind a delete of its key."""
        waiting = self._under_way.get(call.key)
        if waiting is not None and fate.delay_ms == UNDER_WAY_MS_MAX:
            arrive = _UnderWay(arrive)
            waiting.append(arrive)
        self._world.schedule.after(fate.delay_ms, arrive)

    def deleted(self, keys: Sequence[str]) -> None:
        """Let what is under way to these objects arrive now."""
        for key in keys if self._under_way else ():
            for each in self._under_way.pop(key, ()):
                self.hung += not each.is_over
                self._world.schedule.after(1 + self._random.randrange(1_000), each)


@dataclass(slots=True)
class _SlowReader:
    """Reads one piece, `wait_ms` after its node told where that is."""

    world: World
    process: Process
    wait_ms: int
    piece: SegmentPiece | None = None
    is_over: bool = False
    _resolver: ViewResolver | None = None

    async def read(self, tip: TopicIdPartition, request: RecordsRequest) -> None:
        """Read; a segment that was marked meanwhile has to be there for its time."""
        parts = self.process.parts
        assert parts is not None
        self._resolver = ViewResolver(parts.reads, tip)
        try:
            async for _ in parts.reads.of_pieces(request, self):
                pass
        except StrandlineError as error:
            if self.piece is not None and not self.is_over:
                self._check(type(error).__name__)

    async def piece_at(self, offset: int) -> SegmentPiece | None:
        """The port `SegmentResolver`: the first piece, slowly, and no other."""
        assert self._resolver is not None
        if self.piece is not None:
            self.is_over = True
            return None
        self.piece = await self._resolver.piece_at(offset)
        if self.piece is not None:
            await asyncio.sleep(self.wait_ms / 1000)
            self._check("it has waited")
        return self.piece

    def _check(self, why: str) -> None:
        """Check that the objects of the piece are there while its readers have time."""
        world, piece = self.world, self.piece
        assert piece is not None
        segment = piece.segment
        since_ms = world.auditor.since_mark_ms(segment.segment_id.id)
        if since_ms is None or not self.process.life.alive or world.disaster.is_over:
            return
        if since_ms >= round(world.limits.delete_delay_s * 1000) - SLACK_MS:
            return
        world.late.outlived += 1
        keys = segment_keys(world.prefix, segment.segment_id, segment.start_offset)
        gone = [key for key in keys.all() if world.auditor.is_gone(key)]
        world.auditor.check(
            not gone, "readers_have_their_time",
            f"{self.process.machine.name} reads {segment.segment_id} {since_ms} ms after its mark, "
            f"and {gone} went: {why}",
        )  # fmt: skip
