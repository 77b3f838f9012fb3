"""The loop that carries attempts out on the quorum leader's node."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_formats.errors import RetryLater
from rlm.migration.moving import Moving
from rlmm.migration_phase import MigrationPhase
from tests.rlm.migration.test_switching import DEADLINE_S, World

_FOR_EVER_S = 3 * DEADLINE_S


class _StoppedError(Exception):
    """The test has seen enough."""


def moving_of(world: World) -> Moving:
    """The loop in that world."""

    async def sleep(seconds: float) -> None:
        if world.phase not in (MigrationPhase.SWITCHING, MigrationPhase.BACK):
            raise _StoppedError
        if world.now > _FOR_EVER_S:
            raise _StoppedError
        await world.sleep(seconds)

    ambient = SimpleNamespace(monotonic=lambda: world.now, sleep=sleep)
    around = cast("Any", SimpleNamespace(ambient=ambient))
    metadata = cast("Any", SimpleNamespace(migration=world.standing))
    return Moving(metadata, around, lambda: None, world, world, DEADLINE_S)


def test_an_attempt_that_fails_by_a_mistake_of_the_program_ends_at_its_deadline() -> None:
    """It is begun again each time; the brokers have stopped since the first time."""
    world = World(2)

    def broken(since: int) -> set[int]:
        raise TypeError("nobody expected this")

    world.acknowledged = broken  # type: ignore[method-assign]
    moving = moving_of(world)
    with pytest.raises(_StoppedError):
        asyncio.run(moving.carry_out())
    assert world.phase is MigrationPhase.KAFKA
    assert world.now < DEADLINE_S + 10
    assert "nobody expected this" in world.why


def test_a_view_that_a_snapshot_replaces_ends_no_loop() -> None:
    world = World(2)
    leads, asked = world.leads, 0

    def replaced() -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise RetryLater("the view is being replaced by a snapshot")
        return leads()

    world.leads = replaced  # type: ignore[method-assign]
    with pytest.raises(_StoppedError):
        asyncio.run(moving_of(world).carry_out())
    assert asked > 1
    assert world.phase not in (MigrationPhase.SWITCHING, MigrationPhase.BACK)
