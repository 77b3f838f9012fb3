"""Settings of the cluster change at any node: all nodes read them alike at the same offset."""

from __future__ import annotations

from functools import partial

import pytest

from rlm.cluster_settings.in_force import SettingsInForce
from rlm.cluster_settings.resolver import Resolver
from sim.tier.planted_bugs import EVENTS
from sim.tier.world import Plan, run
from tests.sim.worlds import assert_found, fresh, held

SEEDS = 3
FRESH_SEEDS = 1
SOAK_SEEDS = 30
PLANTED_SEEDS_MAX = 20
SETTINGS = Plan(nodes=3, topics=3, settings=True)


def test_all_nodes_read_settings_alike_and_all_is_copied_in_the_end() -> None:
    seeds = (*range(1, SEEDS + 1), *fresh(FRESH_SEEDS))
    held("tier", run, seeds, events=EVENTS, plan=SETTINGS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_nodes_read_settings_alike_over_many_seeds() -> None:
    held("tier", run, fresh(SOAK_SEEDS), events=EVENTS, plan=SETTINGS)


def test_a_setting_that_two_nodes_read_differently_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted mistake: a node goes on with what stood at its start."""

    def as_at_the_start(settings: SettingsInForce) -> Resolver:
        rows, known = settings._resolved
        if rows == () and settings.rows() != ():
            settings._resolved = settings.rows(), Resolver(settings.rows())
        return settings._resolved[1] if rows == () else known

    monkeypatch.setattr(SettingsInForce, "resolver", property(as_at_the_start))
    found_in = partial(run, plan=SETTINGS)
    assert_found("read differently", found_in, seeds=PLANTED_SEEDS_MAX, events=EVENTS)
