"""A MANIFEST that RocksDB would misread is noticed before; a torn tail is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.view.rocksdb_manifest import BLOCK_BYTES, check_manifest, check_records
from rlmm.view.view import View

RECYCLABLE = bytes.fromhex("060586ff86d806") + bytes(80)
"""What RocksDB 10 never stops reading."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A view that was flushed a few times."""
    view = View.open(tmp_path / "view")
    for offset in range(5):
        view.commit([(b"\x10a", b"%d" % offset)], applied_offset=offset, epoch=1)
        view.flush()
    view.close()
    return tmp_path / "view"


def manifest(path: Path) -> Path:
    return path / (path / "CURRENT").read_text().strip()


def test_a_real_one_and_each_torn_tail_of_it_pass(path: Path) -> None:
    check_manifest(path)
    data = manifest(path).read_bytes()
    for size in range(len(data)):
        check_records(data[:size], source="manifest")
    check_records(data + bytes(100), source="manifest")
    check_records(bytes(100), source="manifest")
    check_records(data + bytes(100) + RECYCLABLE, source="manifest")  # RocksDB stops at the zeros


def test_every_flipped_bit_is_noticed_or_cuts_the_tail_off(path: Path) -> None:
    data = manifest(path).read_bytes()
    passed = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        try:
            check_records(bytes(damaged), source="manifest")
            passed += 1
        except CorruptData:
            continue
    # A length that points behind the end of the file looks like a record that was cut off.
    assert passed < len(data) / 25


def test_a_type_that_no_manifest_has_is_damage_and_the_view_is_made_again(path: Path) -> None:
    with manifest(path).open("ab") as file:
        file.write(RECYCLABLE)
    with pytest.raises(CorruptData, match="record of type 6"):
        check_manifest(path)
    view = View.open(path)
    assert view.applied_offset == -1
    view.close()


def test_records_that_leave_no_room_for_a_header_end_at_the_block(path: Path) -> None:
    data = manifest(path).read_bytes()
    whole = data * (BLOCK_BYTES // len(data) + 2)
    with pytest.raises(CorruptData):
        check_records(whole, source="manifest")  # a record across the border of two blocks


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"../x", b"MANIFEST-000001/../x\n"])
def test_a_current_that_names_no_manifest_is_damage(path: Path, content: bytes) -> None:
    (path / "CURRENT").write_bytes(content)
    with pytest.raises(CorruptData, match="CURRENT"):
        check_manifest(path)


def test_a_missing_manifest_is_damage_and_a_missing_current_a_new_view(path: Path) -> None:
    manifest(path).unlink()
    with pytest.raises(CorruptData, match="is gone"):
        check_manifest(path)
    (path / "CURRENT").unlink()
    check_manifest(path)
