"""Lives of a node that end at a step of the protocol, and what has to hold after them: bucket and
metadata agree, nothing is lost, every segment reads back byte for byte.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from pathlib import Path

from kafka_formats.errors import RetryLater, StrandlineError
from kafka_formats.log_names import segment_file_name
from rlm.control.surroundings import CopyLimits
from rlmm.segment import SegmentState
from tests.rlm.hooked_store import OnLate
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Hook, Node, Steps, World, new_world
from tests.rlm.virtual_time import run_virtually

CRASH_LIMITS = replace(LIMITS, part_bytes=512, parts_parallel=2)
"""A `.log` of the test goes up in several parts, its indexes in one."""

PATIENT = replace(CRASH_LIMITS, once_clean_up_wait_s=3_600.0)
LIVES_MAX = 4
ALL_ARRIVED_AFTER_S = LIMITS.upload_deadline_s + LIMITS.upload_margin_s
LATE_REQUESTS = ("put .", "start", "complete", "abort", "delete objects")


class End(Enum):
    """How a life ends at its step.

    KILLED: nothing it was doing has any further effect. LATE: killed, and the requests that were on
    their way arrive long after, when the upload's deadline is over but not yet the margin.
    INTERRUPTED: Ctrl-C, and as much of a clean-up as the shutdown allows.
    """

    KILLED = "killed"
    LATE = "late"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Source:
    """The broker's log, and all that ever was in it: what the tier has to hold in the end."""

    log: KafkaLog
    sealed: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def seal(self, *ranges: tuple[int, int]) -> None:
        """Remember the bytes of segments (start, end), end inclusive."""
        for start, end in ranges:
            self.sealed[start, end] = self.log.log_bytes(start)

    def repair(self) -> None:
        """Put back what was damaged."""
        for (start, _), data in self.sealed.items():
            path = self.log.directory / segment_file_name(start, ".log")
            if path.exists() and path.read_bytes() != data:
                path.write_bytes(data)


def upload_fails_once(steps: Hook) -> Hook:
    """The store takes the `.log`, then fails once: everything of a clean-up follows."""
    failed = False

    async def hook(name: str) -> None:
        nonlocal failed
        await steps(name)
        if name == "before put .indexes" and not failed:
            failed = True
            raise RetryLater("the store is away")

    return hook


def unharmed(steps: Hook) -> Hook:
    return steps


async def nothing_before(world: World, source: Source) -> None:
    """The first life of all."""


async def retention_was_faster(world: World, source: Source) -> None:
    """An earlier life copied two segments; the third was deleted before it could be."""
    async with world.boot(data_plane=True, limits=CRASH_LIMITS) as node:
        await node.remote_log.run_once()
    source.log.write(20, 30, 40, end=45)
    source.seal((30, 39))
    for base in (0, 10, 20):
        source.log.delete_segment(base)


async def an_attempt_was_left(world: World, source: Source) -> None:
    """An earlier life was killed in the middle of its upload."""
    await one_life(world, "before put .rsm-manifest", unharmed, End.KILLED, CRASH_LIMITS)


async def a_segment_was_damaged(world: World, source: Source) -> None:
    """One value in the second segment is wrong while the life runs, and put right after it."""
    path = source.log.directory / segment_file_name(10, ".log")
    path.write_bytes(path.read_bytes().replace(b"v15", b"w15"))


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happened before the life that ends, and what happens in it."""

    name: str
    before: Callable[[World, Source], Awaitable[None]] = nothing_before
    hook: Callable[[Hook], Hook] = unharmed
    patient: bool = False


GOES_WELL = Scenario("all goes well")
UPLOAD_FAILS = Scenario("the first upload fails", hook=upload_fails_once)
RETENTION = Scenario("offsets are lost to retention", retention_was_faster)
LEFT_OVER = Scenario("an attempt was left over", an_attempt_was_left, patient=True)
DAMAGED = Scenario("a segment is damaged", a_segment_was_damaged)
SCENARIOS = (GOES_WELL, UPLOAD_FAILS, RETENTION, LEFT_OVER, DAMAGED)


def new_source(path: Path) -> Source:
    """Two sealed segments and an active one."""
    log = KafkaLog.create(new_log_dir(path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    source = Source(log)
    source.seal((0, 9), (10, 19))
    return source


def all_steps(path: Path, scenario: Scenario) -> list[str]:
    """The names of all steps of a life that nobody ends."""
    path.mkdir()
    source, steps = new_source(path), Steps()

    async def main() -> None:
        world = new_world(path, (source.log.log_dir,))
        await scenario.before(world, source)
        async with world.boot(
            hook=scenario.hook(steps), data_plane=True, limits=limits_of(scenario)
        ) as node:
            await node.remote_log.run_once()

    run_virtually(main)
    shutil.rmtree(path)
    return steps.names


def steps_to_end_at(path: Path, scenario: Scenario, end: End) -> Iterator[tuple[int, str]]:
    """Every step, by number and name; for LATE those at which a request is on its way."""
    for number, name in enumerate(all_steps(path, scenario), 1):
        when, _, what = name.partition(" ")
        if end is not End.LATE or (when == "before" and what.startswith(LATE_REQUESTS)):
            yield number, name


def limits_of(scenario: Scenario) -> CopyLimits:
    return PATIENT if scenario.patient else CRASH_LIMITS


async def one_life(
    world: World,
    step: int | str,
    hook: Callable[[Hook], Hook],
    end: End,
    limits: CopyLimits,
) -> None:
    """A one-shot run that ends at a step, by number or name."""
    steps = Steps(step)
    late = _late_by(LIMITS.upload_deadline_s + LIMITS.upload_margin_s / 2)
    async with world.boot(
        hook=hook(steps),
        data_plane=True,
        limits=limits,
        on_late=late if end is End.LATE else None,
    ) as node:
        run = asyncio.create_task(node.remote_log.run_once(), name="drive run_once")
        reached = asyncio.create_task(steps.stopped.wait())
        await asyncio.wait({run, reached}, return_when=asyncio.FIRST_COMPLETED)
        assert reached.done(), f"the run ended before step {step}: {run}"
        if end is End.INTERRUPTED:
            # The step itself is given up, later ones (of the clean-up) work again.
            steps.stopped.clear()
            run.cancel()
            with suppress(asyncio.CancelledError):
                await run
            await node.remote_log.close()


def _late_by(delay_s: float) -> OnLate:
    def on_late(name: str, request: Callable[[], Awaitable[object]]) -> None:
        if name.startswith(LATE_REQUESTS):
            task = asyncio.create_task(_arrive(delay_s, request), name=f"late {name}")
            _arriving.add(task)
            task.add_done_callback(_arriving.discard)

    return on_late


_arriving: set[asyncio.Task[None]] = set()


async def _arrive(delay_s: float, request: Callable[[], Awaitable[object]]) -> None:
    await asyncio.sleep(delay_s)
    # Nobody hears the answer: a part of an upload that is aborted by now, say.
    with suppress(StrandlineError):
        await request()


async def later_lives(world: World, source: Source) -> None:
    """Runs, deadlines passing in between, until there is nothing left to clean up; then check."""
    for _ in range(LIVES_MAX):
        async with world.boot(data_plane=True, limits=CRASH_LIMITS) as node:
            report = await node.remote_log.run_once()
            await node.remote_log.close()
            if not report.pending_clean_ups:
                assert report.complete, report
                await asyncio.sleep(ALL_ARRIVED_AFTER_S)
                await check_all_is_well(node, source)
                return
        await asyncio.sleep(ALL_ARRIVED_AFTER_S)
    raise AssertionError(f"never quiet: {report}")


async def check_all_is_well(node: Node, source: Source) -> None:
    """Bucket and metadata agree, and every sealed segment reads back, once and byte for byte."""
    await node.assert_quiesced()
    rows = list(node.metadata.list_remote_log_segments(source.log.partition))
    assert sorted((row.start_offset, row.end_offset) for row in rows) == sorted(source.sealed)
    for row in rows:
        assert row.state is SegmentState.COPY_SEGMENT_FINISHED
        try:
            pieces = [piece async for piece in node.parts.reads.open_log(row.segment_id.id)]
        except StrandlineError as error:
            raise AssertionError(f"{row} cannot be read: {error}") from error
        assert b"".join(pieces) == source.sealed[row.start_offset, row.end_offset]
    state = node.metadata.partition_state(source.log.partition)
    assert state is not None
    ends = sorted((end, start) for start, end in source.sealed)
    holes = [
        (before + 1, start - 1) for (before, _), (_, start) in pairwise(ends) if before + 1 < start
    ]
    assert [(lost.start, lost.end) for lost in state.lost_ranges] == holes


def end_at(path: Path, scenario: Scenario, end: End, number: int) -> None:
    """One world: a life that ends at the step, later lives, checks."""
    path.mkdir()
    source = new_source(path)

    async def main() -> None:
        world = new_world(path, (source.log.log_dir,))
        await scenario.before(world, source)
        await one_life(world, number, scenario.hook, end, limits_of(scenario))
        source.repair()
        await later_lives(world, source)

    run_virtually(main)
    shutil.rmtree(path)


def end_everywhere(path: Path, scenario: Scenario, end: End) -> int:
    """Every step of the scenario; how many there were. AssertionError names the one that fails."""
    count = 0
    for number, name in steps_to_end_at(path / "steps", scenario, end):
        try:
            end_at(path / str(number), scenario, end, number)
        except AssertionError as error:
            raise AssertionError(f"{end.value} at step {number} ({name}): {error}") from error
        count += 1
    return count
