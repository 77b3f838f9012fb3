"""An export that is killed anywhere and run again has every record once, and leaves no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.export.export_world import FORMATS, Killed, World, segment

STEPS = ("open", "settle", "started", "write", "files", "commit", "dead-letters", "clean-up")


def world(format: str, root: Path, *, by_day: bool = False) -> World:
    return World(format, root, by_day, [segment(0, 9), segment(10, 19), segment(20, 24)])


@pytest.mark.parametrize("format", FORMATS)
def test_an_export_killed_behind_any_step_and_run_again_is_exactly_once(
    format: str, tmp_path: Path
) -> None:
    for step in STEPS:
        root = tmp_path / step
        root.mkdir()
        there = world(format, root)
        with pytest.raises(Killed):
            there.run(kill_behind=step)
        there.run()
        assert there.offsets() == list(range(25)), step
        assert there.data_files() == there.named_files(), step


@pytest.mark.parametrize("format", FORMATS)
def test_a_run_killed_at_any_change_of_its_folder_leaves_nothing_to_the_run_after_the_next(
    format: str, tmp_path: Path
) -> None:
    """The first run dies in a task, the second at each of its changes by turns, clean-up included;
    the third makes it whole.
    """
    changes = 0
    while True:
        root = tmp_path / str(changes)
        root.mkdir()
        there = world(format, root, by_day=True)
        with pytest.raises(Killed):
            there.run(kill_at_record=17)
        assert len(there.data_files()) > 0
        try:
            there.run(changes=changes)
        except Killed:
            there.run()
            killed = True
        else:
            killed = False
        assert there.offsets() == list(range(25)), changes
        assert there.data_files() == there.named_files(), changes
        if not killed:
            break
        changes += 1
    assert changes > 5
