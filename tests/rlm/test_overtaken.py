"""A node that stood still at any step while another took over does no harm when it wakes up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rlm.crash_world import GOES_WELL, UPLOAD_FAILS, Scenario
from tests.rlm.overtaken import overtaken_at


@pytest.mark.parametrize("scenario", [GOES_WELL, UPLOAD_FAILS], ids=lambda scenario: scenario.name)
def test_a_node_that_was_overtaken_at_any_step_has_no_effect_any_more(
    tmp_path: Path, scenario: Scenario
) -> None:
    names = overtaken_at(tmp_path / "steps", -1, scenario.hook)
    assert "after COPY_SEGMENT_FINISHED" in names
    for number, name in enumerate(names, 1):
        try:
            overtaken_at(tmp_path / str(number), number, scenario.hook)
        except AssertionError as error:
            raise AssertionError(f"at step {number} ({name}): {error}") from error
