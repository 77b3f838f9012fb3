"""What is told of a seed that fails."""

from __future__ import annotations

import pytest

from tests.sim.worlds import held


@pytest.mark.parametrize("error", [AssertionError("no leader"), KeyError("no leader")])
def test_a_seed_that_fails_is_named_with_the_command_that_replays_it(error: Exception) -> None:
    def run(seed: int, events: int) -> int:
        if seed == 8:
            raise error
        return seed * events

    assert held("core", run, range(5, 8), events=70) == [350, 420, 490]
    with pytest.raises(pytest.fail.Exception) as failed:
        held("core", run, range(5, 10), events=70)
    told = f"python -m sim --world core --seed 8 --events 70: {type(error).__name__} "
    assert str(failed.value).startswith(told)
