"""Every parser of the table, fed hostile inputs; `test_soak.py` is the long run."""

from __future__ import annotations

import pytest

from tests.fuzz.engine import Target, fuzz
from tests.fuzz.table import LEFT_OUT, modules, parsers_of, targets

QUICK_SEED = 20_261_121
QUICK_INPUTS = 1_000
TARGETS = targets()


def test_every_parser_is_in_the_table() -> None:
    covered = {name for target in TARGETS for name in target.covers}
    found = {name for module in modules() for name in parsers_of(module)}
    assert found - covered - set(LEFT_OUT) == set(), "give these a row in tests/fuzz/*_targets.py"
    assert (covered | set(LEFT_OUT)) - found == set(), "these are gone: bring the table up to date"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hostile_inputs_get_the_documented_errors_in_bounds(target: Target) -> None:
    tally = fuzz(target, seed=QUICK_SEED, count=int(QUICK_INPUTS * target.share))
    assert tally.taken
    assert tally.refused or not target.errors or "none" in target.name
