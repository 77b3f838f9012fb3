from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.primitives import Writer
from rlmm.metadata_log import Proposal
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from rlmm.records.records import encode
from rlmm.records.segment_records import decode_segment_record
from rlmm.rows import snapshot_rows
from rlmm.rows.snapshot_rows import from_proposals, to_proposals
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from rlmm.view.view import View, digest_of
from tests.rlmm.state_world import World


@pytest.fixture
def world() -> World:
    """Rows of most kinds."""
    world = World()
    world.leads((4, 100), (6, 150))
    world.copy(1, 100, 199, [(4, 100), (6, 150)])
    world.copy(2, 150, 260, [(6, 150)])
    world.accept(world.a_lost_range(261, 299), world.an_add(3, 300, 399, [(6, 300)]))
    world.accept(world.an_add(4, 300, 399, [(6, 300)]))
    world.accept(world.a_delete(4, SegmentState.COPY_SEGMENT_STARTED), world.a_delete_finish(4))
    world.accept(TopicPolicyChange("orders", TopicPolicy(retention_ms=5), -1))
    return world


def test_rows_come_back_as_they_were(world: World) -> None:
    rows = world.rows.items()
    records = list(to_proposals(rows))
    assert list(from_proposals(records)) == rows
    assert list(to_proposals(from_proposals(records))) == records


def test_segment_rows_are_kafkas_records_and_the_rest_is_ours(world: World) -> None:
    records = list(to_proposals(world.rows.items()))
    segments = [record.value for record in records if record.control_type is None]
    found = [decode_segment_record(value, source="") for value in segments]
    assert all(isinstance(each, RemoteLogSegmentMetadata) for each in found)
    assert len(found) == 3
    assert {record.control_type for record in records} == {None, 1100}


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 128, 509, 510, 511, 512, 600, 20_000])
def test_rows_of_every_length_are_written_as_kafka_writes_lengths(length: int) -> None:
    key, other = b"\x21" + bytes(length), b"\x22a"
    rows = [(key, b"v"), (other, bytes(length))]
    assert list(to_proposals(rows)) == [row(*each) for each in rows]


@pytest.mark.parametrize("length", [0, 1, 126, 127, 300, 600])
def test_every_damaged_byte_of_a_row_means_the_same_both_ways(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = row(b"\x21" + bytes(length // 3), bytes(length)).value
    damaged = [
        whole[:at] + bytes((new,)) + whole[at + 1 :]
        for at in range(min(len(whole), 140))
        for new in {0, 1, 2, 0x7F, 0x80, 0xFF, whole[at] ^ 1}
    ]
    damaged += [whole[:at] for at in range(len(whole))]
    damaged += [whole[: -at - 1] + bytes((at,)) for at in range(3)] + [whole + b"\0"]

    def outcomes() -> list[object]:
        found: list[object] = []
        for value in damaged:
            try:
                found += from_proposals([Proposal(1100, value)])
            except CorruptData:
                found.append(None)
        return found

    fast = outcomes()
    assert any(each is not None for each in fast)
    monkeypatch.setattr(snapshot_rows, "_short_row", lambda _: None)
    assert outcomes() == fast


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = View.open(tmp_path / "view")
    yield view
    view.close()


def test_an_installed_snapshot_has_the_same_digest(world: World, view: View) -> None:
    records = to_proposals(world.rows.items())
    view.install_from(from_proposals(records), applied_offset=world.offset, epoch=1)
    assert view.digest() == digest_of(world.rows.items())
    assert list(view.rows_in_key_order()) == world.rows.items()


def row(key: bytes, value: bytes = b"", version: int = 0) -> Proposal:
    writer = Writer()
    writer.int16(version)
    writer.bytes_(key)
    writer.bytes_(value)
    writer.tagged_fields(())
    return Proposal(1100, writer.done())


@pytest.mark.parametrize(
    "records",
    [
        [row(b"\x21b"), row(b"\x21a")],
        [row(b"\x21a"), row(b"\x21a")],
        [row(b"\x00")],
        [row(b"\xf0")],
        [row(b"")],
        [row(b"\x30" + bytes(16))],  # a segment row has no other form than Kafka's record
        [row(b"\x21a", version=1)],
        [Proposal(1100, row(b"\x21a").value[:-1])],
        [Proposal(1100, row(b"\x21a").value + b"\0")],
        [Proposal(1000, row(b"\x21a").value)],
        [Proposal(None, b"garbage")],
        [encode(World().a_finish(1))],
    ],
)
def test_what_no_snapshot_holds_is_corrupt_data(records: list[Proposal]) -> None:
    with pytest.raises(CorruptData):
        list(from_proposals(records))
