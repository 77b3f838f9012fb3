"""A switch and a way back whose node dies at any step end as they do without, and the topic is read
to its end only once nobody writes any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rlm.migration.switching import Attempt, Switching
from rlmm.migration_phase import ENDS_IN, RETURNS_TO, MigrationPhase
from tests.rlm.migration.test_switching import World, carry_out, check, late_writes

SEEDS = range(3)


class CalmWorld(World):
    """All brokers live and are heard, and the topic is kept up; each finishes what it began."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shadow_works = True
        for broker in self.brokers:
            broker.lives = broker.sees_node = True
            broker.outstanding = 1

    async def sleep(self, seconds: float) -> None:
        self.step()
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.25)
            for broker in self.brokers:
                self.act(broker)
                if broker.outstanding and self.random.random() < 0.2:
                    broker.outstanding -= 1
                    self.write()
            if self.unshadowed:
                self.topic.append(self.unshadowed.pop(0))
            elif self.random.random() < 0.2:
                self.markers = 0


def play(seed: int, crash_at: int | None, phase: MigrationPhase) -> CalmWorld:
    world = CalmWorld(seed, crash_at, phase)

    async def all_of_it() -> None:
        await carry_out(world)
        told = f"seed {seed}, crashed at {crash_at}: {world.phase.name}, {world.why}"
        assert world.phase is ENDS_IN[phase], told
        check(world)
        await late_writes(world)

    asyncio.run(all_of_it())
    return world


@pytest.mark.parametrize("phase", sorted(RETURNS_TO))
def test_whoever_dies_at_any_step_the_end_is_the_same(phase: MigrationPhase) -> None:
    crashes = 0
    for seed in SEEDS:
        for at in range(1, play(seed, None, phase).steps):
            assert play(seed, at, phase).crash_at is None, "it did not crash"
            crashes += 1
    assert crashes > 40 * len(SEEDS)


def ends_taken_early(patch: pytest.MonkeyPatch) -> None:
    """The topic is read before the last broker has acknowledged, and never again."""

    async def forth(self: Switching, attempt: Attempt) -> None:
        source = await self.brokers.open_topic()
        ends = await self._import(source, attempt)
        await self._silence(attempt)
        await self.log.begin_shadow(attempt.standing.since, source.topic_id, ends)
        await self.log.move(attempt.standing, MigrationPhase.QUORUM, "read")

    patch.setattr(Switching, "_forth", forth)


def begun_again_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes an attempt over believes that the dead one had waited for the brokers."""
    begin = Switching.begin

    def believing(self: Switching, before: Attempt | None = None) -> Attempt | None:
        attempt = begin(self, before)
        if attempt is not None and self.time.monotonic() > 0:
            attempt.is_silent = True
        return attempt

    patch.setattr(Switching, "begin", believing)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (ends_taken_early, "the ends are those of the whole topic"),
        (begun_again_in_the_middle, "a broker wrote behind the switch"),
    ],
)
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        play_all()


def play_all() -> None:
    for phase in RETURNS_TO:
        for seed in SEEDS:
            for at in (None, *range(1, 40)):
                play(seed, at, phase)
