"""Damage in RocksDB's files is never a wrong row: the view is made again from the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from rlmm.rows.keys import LOGICAL_START
from rlmm.view.view import View, digest_of
from tests.durability.quorum_node import open_node
from tests.rlmm.metadata_node import copied

FLUSHES = 3
ROWS = 40
IGNORED = ("LOG", "OPTIONS", "IDENTITY", "LOCK", "rocksdict-config.json")
"""RocksDB's own log, and files whose content it replaces or never uses."""


def row_key(number: int) -> bytes:
    return LOGICAL_START + b"%04d" % number


def rows_after(flush: int) -> list[tuple[bytes, bytes]]:
    return [
        (row_key(number), b"%d-%d" % (flush, number) * 5)
        for number in range(ROWS * flush // FLUSHES)
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A view flushed a few times, closed."""
    path = tmp_path_factory.mktemp("whole") / "view"
    view = View.open(path)
    for flush in range(1, FLUSHES + 1):
        view.commit(rows_after(flush), applied_offset=flush, epoch=1)
        view.flush()
    view.close()
    return path


def damaged_files(whole: Path) -> list[Path]:
    return sorted(path for path in whole.iterdir() if not path.name.startswith(IGNORED))


def read_everything(view: View) -> None:
    """Every way of reading gives the rows of one moment, and the digest of that moment."""
    rows = dict(rows_after(max(view.applied_offset, 0)))
    assert dict(view.rows_in_key_order()) == rows
    assert {key: view.get(key) for key in rows} == rows
    assert dict(view.scan(b"\x01", b"\xf0", reverse=True)) == rows
    assert view.digest() == digest_of(rows.items())


def reads_right(view: View) -> bool:
    """False where the damage was noticed; an error's trace would keep the database open."""
    try:
        read_everything(view)
    except CorruptData:
        return False
    return True


def closes_right(view: View) -> bool:
    """False where a compaction in the background met the damage: closing is told of it."""
    try:
        view.close()
    except CorruptData:
        return False
    return True


def damage_everywhere(whole: Path, home: Path, *, step: int) -> tuple[int, int]:
    """Turn single bits over; returns how often the rows were right, and how often made again."""
    right = made_again = 0
    for file in damaged_files(whole):
        data = file.read_bytes()
        for position in range(0, len(data), step):
            home.mkdir()
            shutil.copytree(whole, home / "view")
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            (home / "view" / file.name).write_bytes(flipped)
            view = View.open(home / "view")
            noticed = not reads_right(view)
            noticed = not closes_right(view) or noticed
            if noticed:
                view = View.open(home / "view")
                assert view.applied_offset == -1, f"{file.name} at {position} is not made again"
                assert reads_right(view)
                view.close()
            if (home / "view.damaged").exists():
                made_again += 1
            else:
                right += 1
            shutil.rmtree(home)
    return right, made_again


def test_no_flipped_bit_is_a_wrong_row(whole: Path, home: Path) -> None:
    right, made_again = damage_everywhere(whole, home, step=11)
    assert made_again > 50
    assert right > 0  # how many depends on when RocksDB compacts, which meets damage, too


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_no_flipped_bit_at_all_is_a_wrong_row(whole: Path, home: Path) -> None:
    _, made_again = damage_everywhere(whole, home, step=1)
    assert made_again > 500


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_node_with_a_damaged_view_starts_with_the_same_digest(
    tmp_path: Path, snapshot: bool
) -> None:
    node = await open_node(tmp_path)
    await copied(node.manager, 20)
    if snapshot:
        await node.manager.take_snapshot()
    digest = node.manager.digest()
    await node.close()
    (table,) = (tmp_path / "view").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    table.write_bytes(data)
    for boot in (2, 3):
        # The first start finds the damage when it reads the row; the second has a new view.
        try:
            node = await open_node(tmp_path, boot=boot)
            list(node.view.rows_in_key_order())
        except CorruptData:
            assert boot == 2
            if node.manager.failure is None:
                await node.close()
            continue
        assert node.manager.digest() == digest
        assert digest_of(node.view.rows_in_key_order()) == digest
        await node.close()
