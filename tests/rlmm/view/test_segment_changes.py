"""Changed segments are remembered within bounds, and nothing behind a snapshot that was installed.
That lists are true by them: tests/rlm/delegated/test_segment_lists.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.records.segment_records import encode_segment_record
from rlmm.rows import keys
from rlmm.rows.rows import RowChange
from rlmm.view import segment_changes
from rlmm.view.segment_changes import SegmentChanges
from rlmm.view.view import View
from tests.rlmm.metadata_node import PARTITION, started

OTHER = TopicIdPartition("payments", Uuid(b"topic-id-paymen."), 3)


def added(number: int) -> RowChange:
    segment = started(number, 1)
    return keys.segment_key(segment.segment_id.id), None, encode_segment_record(segment)


def commit(view: View, changes: SegmentChanges, *numbers: int) -> None:
    before, made = view.applied_offset, [added(number) for number in numbers]
    view.commit_changes(made, applied_offset=before + 1, epoch=1)
    changes.committed(made, before)


def id_of(number: int) -> Uuid:
    return started(number, 1).segment_id.id


def test_only_partitions_that_are_asked_about_are_followed(tmp_path: Path) -> None:
    view = View.open(tmp_path / "view")
    try:
        changes = SegmentChanges(view)
        commit(view, changes, 1)
        assert changes.changed_at(PARTITION) == 0
        commit(view, changes, 2)
        assert changes.since(PARTITION, 0) == (id_of(2),)
        assert changes.since(PARTITION, -1) is None
        assert changes.since(PARTITION, 2) is None
        assert (changes.changed_at(PARTITION), changes.changed_at(OTHER)) == (1, 1)
        commit(view, changes)
        assert changes.changed_at(PARTITION) == 1
    finally:
        view.close()


def test_the_changes_remembered_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_changes, "PARTITION_CHANGES_MAX", 3)
    monkeypatch.setattr(segment_changes, "PARTITIONS_MAX", 2)
    view = View.open(tmp_path / "view")
    try:
        changes = SegmentChanges(view)
        assert changes.changed_at(PARTITION) == -1
        for number in range(5):
            commit(view, changes, number)
        assert changes.since(PARTITION, 0) is None
        assert changes.since(PARTITION, 1) == (id_of(4), id_of(3), id_of(2))
        changes.changed_at(OTHER)
        changes.changed_at(PARTITION)
        changes.changed_at(TopicIdPartition("third", Uuid(b"topic-id-third.."), 0))
        assert changes.since(PARTITION, 3) == (id_of(4),)
        monkeypatch.setattr(segment_changes, "CHANGES_MAX", 2)
        commit(view, changes, 7)
        assert changes.since(PARTITION, 4) is None
        assert (changes._count, changes.changed_at(PARTITION)) == (0, 5)
    finally:
        view.close()


def test_nothing_is_remembered_behind_an_installed_snapshot(tmp_path: Path) -> None:
    view = View.open(tmp_path / "view")
    try:
        changes = SegmentChanges(view)
        at = changes.changed_at(PARTITION)
        commit(view, changes, 1)
        view.install_from([], applied_offset=7, epoch=1)
        assert changes.since(PARTITION, at) is None
        view.install_from([], applied_offset=9, epoch=1)
        commit(view, changes, 2)
        assert changes.since(PARTITION, 7) is None
    finally:
        view.close()
