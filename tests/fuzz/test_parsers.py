"""Every parser of the table, fed hostile inputs: a quick run, and a long one with `make soak`."""

from __future__ import annotations

import os
import random

import pytest

from tests.fuzz.engine import Target, fuzz
from tests.fuzz.table import LEFT_OUT, modules, parsers_of, targets

QUICK_SEED = 20_261_121
QUICK_INPUTS = 2_000
SOAK_INPUTS = int(os.environ.get("STRANDLINE_FUZZ_INPUTS", "1000000"))
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


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_million_hostile_inputs(target: Target) -> None:
    """A new seed each time; STRANDLINE_FUZZ_SEED repeats one, STRANDLINE_FUZZ_INPUTS shortens."""
    seed = int(os.environ.get("STRANDLINE_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    print(f"{target.name}: STRANDLINE_FUZZ_SEED={seed}")
    fuzz(target, seed=seed, count=max(1, int(SOAK_INPUTS * target.share)))
