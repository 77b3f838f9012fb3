"""The world of the remote log manager bites: planted mistakes are found."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

import pytest

import sim.tier.world
from sim.core.invariants import InvariantError
from sim.tier import planted_in_delegated
from sim.tier.planted_bugs import (
    BUGS,
    BUGS_OF_DAMAGE,
    BUGS_OF_FOLLOWING,
    BUGS_OF_HELD_DAMAGE,
    BUGS_OF_LOCAL_DAMAGE,
    BUGS_OF_SCRIPTS,
    DAMAGED_SEEDS_MAX,
    EVENTS,
    FIRST_SEEDS,
    FOLLOWING_SEEDS_MAX,
    RARE_BUGS,
    RARE_SEEDS_MAX,
    SEEDS_MAX,
    planted,
)
from sim.tier.planted_in_delegated import (
    BUGS_OF_DELEGATED,
    BUGS_OF_DELEGATED_SCRIPTS,
    DELEGATED_SEEDS_MAX,
    REPLACED,
)
from sim.tier.planted_in_holding import BUGS_OF_QUIET, planted_in_holding
from sim.tier.scripts import play
from sim.tier.world import ROOM_BYTES, Plan, run
from tests.sim.seen_at import SEEN_AT
from tests.sim.test_tier import FOLLOWING, QUIET, REWRITING, REWRITING_SEEDS
from tests.sim.test_tier_scripts import SCRIPTS
from tests.sim.worlds import assert_found, fresh, held

DAMAGED_DISKS, ANY_DISKS = 2, 20


DISKS = Plan(nodes=3, hold_bytes_max=-1, damage=False, local_damage=True)
"""Brokers lose or cut sealed segments."""
HELD_DISKS = Plan(nodes=3, hold_bytes_max=ROOM_BYTES, damage=False, local_damage=True)
"""They do so beside nodes that hold what is not copied."""
ANY_WORLDS_DISKS = Plan(local_damage=True)
HEAL_MS = 300_000


def delegated_plan(name: str) -> Plan:
    """Of the worlds that show a mistake which costs brokers records."""
    deeds, _ = BUGS_OF_DELEGATED[name]
    return Plan(nodes=2, topics=1, delegated=True, tiering=deeds)


NEVER_HEAL = {
    name: delegated_plan(name) if name in BUGS_OF_DELEGATED else plan
    for name, plan in {
        "LOSS-2: a list is empty before its node is ready": None,
        "what an earlier leader lost is lost for good": None,
        "what is copied in part is held no more": None,
        "what is held is not looked at before others are asked": HELD_DISKS,
        "nothing proves DeleteRecords": FOLLOWING,
    }.items()
}
"""The plans of mistakes that show in a world which never heals: it is given a few minutes."""


@pytest.fixture(autouse=True)
def soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = getattr(request.node, "callspec", None)
    if parameters is not None and parameters.params.get("name") in NEVER_HEAL:
        monkeypatch.setattr(sim.tier.world, "HEAL_MS", HEAL_MS)


@pytest.mark.parametrize("name", NEVER_HEAL)
def test_a_world_that_never_heals_for_a_mistake_heals_soon_without_it(name: str) -> None:
    held("tier", run, [SEEN_AT[name]], events=EVENTS, plan=NEVER_HEAL[name])


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_mistake_is_found(name: str) -> None:
    with planted(name):
        first, seen_at = FIRST_SEEDS.get(name, 1), SEEN_AT.get(name)
        assert_found(name, run, seeds=SEEDS_MAX, events=EVENTS, first=first, seen_at=seen_at)


@pytest.mark.parametrize("name", BUGS_OF_DAMAGE)
def test_a_planted_mistake_of_repairs_is_found(name: str) -> None:
    with planted(name):
        found_in, seen_at = partial(run, plan=Plan(damage=True)), SEEN_AT.get(name)
        assert_found(name, found_in, seeds=DAMAGED_SEEDS_MAX, events=EVENTS, seen_at=seen_at)


@pytest.mark.parametrize("name", BUGS_OF_LOCAL_DAMAGE)
def test_a_planted_mistake_about_a_brokers_disk_is_found(name: str) -> None:
    with planted(name):
        found_in, seen_at = partial(run, plan=DISKS), SEEN_AT.get(name)
        assert_found(name, found_in, seeds=DAMAGED_SEEDS_MAX, events=EVENTS, seen_at=seen_at)


@pytest.mark.parametrize("name", BUGS_OF_HELD_DAMAGE)
def test_a_planted_mistake_about_what_a_broker_lost_and_its_node_holds_is_found(name: str) -> None:
    with planted(name):
        first, seen_at = FIRST_SEEDS.get(name, 1), SEEN_AT.get(name)
        found_in = partial(run, plan=HELD_DISKS)
        assert_found(
            name, found_in, seeds=DAMAGED_SEEDS_MAX, events=EVENTS, first=first, seen_at=seen_at
        )


@pytest.mark.parametrize("name", BUGS_OF_QUIET)
def test_a_planted_mistake_about_records_that_never_left_the_active_segment_is_found(
    name: str,
) -> None:
    with planted_in_holding(name):
        found_in, seen_at = partial(run, plan=QUIET), SEEN_AT.get(name)
        assert_found(name, found_in, seeds=DAMAGED_SEEDS_MAX, events=EVENTS, seen_at=seen_at)


@pytest.mark.parametrize("name", BUGS_OF_FOLLOWING)
def test_a_planted_mistake_about_delete_records_is_found(name: str) -> None:
    with planted(name):
        found_in, seen_at = partial(run, plan=FOLLOWING), SEEN_AT.get(name)
        assert_found(name, found_in, seeds=FOLLOWING_SEEDS_MAX, events=EVENTS, seen_at=seen_at)


def test_a_planted_mistake_about_files_that_brokers_write_anew_is_found() -> None:
    name = "a held file that was cut and written on is let go"
    with planted(name):
        assert_found(
            name, partial(run, plan=REWRITING), seeds=DAMAGED_SEEDS_MAX, events=EVENTS,
            first=REWRITING_SEEDS[0],
        )  # fmt: skip


def test_what_brokers_lose_is_copied_from_the_others_or_lost_to_all() -> None:
    held("tier", run, range(1, DAMAGED_DISKS + 1), events=EVENTS, plan=DISKS)
    held("tier", run, range(1, DAMAGED_DISKS + 1), events=EVENTS, plan=HELD_DISKS)


@pytest.mark.parametrize("name", BUGS_OF_DELEGATED)
def test_a_planted_mistake_that_costs_brokers_records_is_found(name: str) -> None:
    found_in = partial(run, plan=delegated_plan(name))
    with planted_in_delegated.planted(name):
        seen_at = SEEN_AT.get(name)
        assert_found(name, found_in, seeds=DELEGATED_SEEDS_MAX, events=EVENTS, seen_at=seen_at)


@pytest.mark.soak
def test_what_brokers_lose_over_long_runs() -> None:
    held("tier", run, range(1_000, 1_040), events=6_000, plan=DISKS)


@pytest.mark.soak
def test_what_brokers_lose_over_long_runs_of_any_kind() -> None:
    held("tier", run, fresh(ANY_DISKS), events=6_000, plan=ANY_WORLDS_DISKS)


@pytest.mark.soak
@pytest.mark.parametrize("name", RARE_BUGS)
def test_a_planted_mistake_that_shows_seldom_is_found(name: str) -> None:
    with planted(name):
        assert_found(name, run, seeds=RARE_SEEDS_MAX, events=EVENTS)


@pytest.mark.parametrize("name", BUGS_OF_SCRIPTS)
def test_a_planted_mistake_makes_a_script_come_out_otherwise(name: str) -> None:
    assert_comes_out_otherwise(BUGS_OF_SCRIPTS[name][0], planted(name))


@pytest.mark.parametrize("name", BUGS_OF_DELEGATED_SCRIPTS)
def test_a_planted_mistake_makes_a_script_about_a_brokers_topic_come_out_otherwise(
    name: str,
) -> None:
    script, _ = BUGS_OF_DELEGATED_SCRIPTS[name]
    assert_comes_out_otherwise(script, planted_in_delegated.planted(name))


def test_the_auditor_misses_what_a_replaced_broker_deletes_of_its_successors_log() -> None:
    """It asked while it led, and had none of these records."""
    (path,) = (each for each in SCRIPTS if each.stem == BUGS_OF_DELEGATED_SCRIPTS[REPLACED][0])
    lost = pytest.raises(InvariantError, match="nothing_lost")
    with planted_in_delegated.planted(REPLACED), lost:
        play(path.read_text())


def assert_comes_out_otherwise(script: str, planting: AbstractContextManager[None]) -> None:
    (path,) = [each for each in SCRIPTS if each.stem == script]
    text = path.read_text()
    with planting:
        try:
            found = play(text)
        except InvariantError as error:
            found = str(error)
    assert found != text
