"""Interleavings by hand, and what comes of them, as text (`sim/tier/scripts.py` has the words).

Each file is a script with what happens below each line. After a change that means to change it:
`python -m sim --script FILE > NEW`, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_client.replica_answers import Extent
from rlm.copy.mending import _Asking, _ReplicaAnswer
from rlm.local_log.gap_rule import GapWatch
from sim.core.invariants import InvariantError
from sim.tier.scripts import play

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / "golden" / "tier").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_comes_out_as_it_is_written(path: Path) -> None:
    text = path.read_text()
    assert play(text) == text


def test_every_named_interleaving_has_a_script() -> None:
    assert {path.stem for path in SCRIPTS} >= {
        "claim_read_before_its_commit",
        "crash_during_clean_up",
        "crash_during_copy",
        "crash_during_delete",
        "crash_during_hold",
        "delegated_copy_is_not_finished",
        "delegated_delete_of_a_replaced_broker",
        "delegated_fresh_leader",
        "delegated_head_of_a_later_leader",
        "delegated_index_that_cannot_be_read",
        "delegated_kept_history_by_size",
        "delegated_late_add",
        "delegated_late_add_unannounced",
        "delegated_late_delete",
        "delegated_late_finish",
        "delegated_node_restarts",
        "delegated_over_older_history",
        "delegated_paused_between",
        "delegated_replica_moves_away",
        "delegated_run_broken_off",
        "delegated_run_broken_off_across_epochs",
        "delegated_topic_deleted",
        "delegated_topic_deleted_before_a_look",
        "delegated_topic_deleted_without_its_node",
        "delegated_unclean_election",
        "delegated_unclean_election_rebuilt",
        "delegated_unclean_election_there_and_back",
        "delete_during_copy",
        "delete_records_followed",
        "delete_records_past_the_copied_offset",
        "double_leader",
        "hold_below_a_log_begun_anew",
        "hold_below_what_delete_records_took",
        "hold_of_a_file_cut_and_written_on",
        "hold_of_a_replica_that_moved",
        "hold_of_an_open_transaction",
        "hold_that_the_log_begins_amid",
        "hold_that_was_not_enough",
        "hold_through_an_outage",
        "leader_change_during_copy",
        "leader_change_during_copy_unheard",
        "late_claim_over_held_segments",
        "late_put_of_a_finished_copy",
        "lost_finished_response",
        "retention_past_the_copied_offset",
        "segment_lost_from_the_leaders_disk",
        "two_incarnations",
        "unclean_election",
        "unclean_election_there_and_back",
        "zombie_put_after_delete_finished",
    }


def test_a_gap_that_is_taken_for_covered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: a neighbour counts as covering what the disk lost."""
    (path,) = (each for each in SCRIPTS if each.stem == "segment_lost_from_the_leaders_disk")
    monkeypatch.setattr(GapWatch, "check", lambda _watch, _source: None)
    with pytest.raises(InvariantError, match="is not what the leader wrote"):
        play(path.read_text())


def test_what_another_replica_has_is_not_given_up_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: what this disk lost counts as gone everywhere."""
    (path,) = (each for each in SCRIPTS if each.stem == "segment_lost_from_the_leaders_disk")

    async def asks_nobody(asking: _Asking) -> None:
        asking._said[1] = _ReplicaAnswer(Extent(0, 0))

    monkeypatch.setattr(_Asking, "ask_all", asks_nobody)
    with pytest.raises(InvariantError, match="no_hole"):
        play(path.read_text())
