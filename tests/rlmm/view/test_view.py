from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rocksdict import Rdict

from kafka_formats.errors import Conflict, CorruptData, InternalError, RetryLater
from rlmm.rows.rows import MemoryRows, RowWrite
from rlmm.view import view as view_module
from rlmm.view.view import View, digest_of, row_digest

ROWS = [(b"\x10a", b"1"), (b"\x20b", b""), (b"\x30c", b"3" * 100)]
OTHER_ROWS = [(b"\x10a", b"2"), (b"\x33d", b"4")]


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = View.open(tmp_path / "view")
    yield view
    view.close()


def filled(view: View) -> View:
    view.commit(ROWS, applied_offset=7, epoch=3)
    return view


def test_a_new_view_is_empty(view: View) -> None:
    assert (view.applied_offset, view.applied_epoch, view.flushed_offset) == (-1, -1, -1)
    assert view.digest() == bytes(16)
    assert view.record_time_ms == 0
    assert list(view.rows_in_key_order()) == []


def test_rows_are_read_as_committed(view: View) -> None:
    filled(view)
    assert view.get(b"\x10a") == b"1"
    assert view.get(b"\x20b") == b""
    assert view.get(b"\x21") is None
    assert list(view.scan(b"\x10", b"\x30c")) == ROWS[:2]
    assert list(view.scan(b"\x10", b"\x30c", reverse=True)) == ROWS[1::-1]
    assert list(view.scan(b"\x10b", b"\x30d", reverse=True)) == ROWS[:0:-1]
    assert list(view.scan(b"\x30", b"\x20")) == []
    assert list(view.scan(b"\x30", b"\x20", reverse=True)) == []
    assert list(view.rows_in_key_order()) == ROWS


def test_a_scan_sees_one_moment(view: View) -> None:
    filled(view)
    scan, backwards = view.rows_in_key_order(), view.scan(b"\x01", b"\xf0", reverse=True)
    view.commit([(b"\x10a", None), (b"\x15", b"new")], applied_offset=8, epoch=3)
    assert list(scan) == ROWS
    assert list(backwards) == ROWS[::-1]
    assert view.get(b"\x15") == b"new"
    assert next(view.scan(b"\x10", b"\x20")) == (b"\x15", b"new"), "later scans are fresh"


def test_files_that_only_a_scan_needed_go_by_themselves_behind_its_end(
    view: View, tmp_path: Path
) -> None:
    def tables() -> set[str]:
        return {path.name for path in tmp_path.rglob("*.sst")}

    filled(view).flush()
    scan = view.rows_in_key_order()
    needed = tables()
    view.commit(OTHER_ROWS, applied_offset=8, epoch=3)
    view.flush()
    view._database.compact_range(None, None)
    assert needed < tables()
    assert list(scan) == ROWS
    pause = threading.Event()
    while needed & tables():  # RocksDB's own thread removes them
        pause.wait(0.01)


def test_a_busy_view_merges_many_files_at_once_and_a_quiet_one_few(view: View) -> None:
    def files() -> int:
        return int(view._database.property_value("rocksdb.num-files-at-level0") or 0)

    def merged() -> bool:
        # RocksDB merges in threads of its own: what is wrong stays wrong.
        pause = threading.Event()
        return any(files() < 2 or pause.wait(0.01) for _ in range(500))

    def flush(offset: int, *, busy: bool | None) -> None:
        rows = [(b"\x10" + bytes((row, offset)), b"value") for row in range(9)]
        view.commit(rows, applied_offset=offset, epoch=3)
        view.flush(busy=busy)

    filled(view).flush()
    for offset in range(8, 14):
        flush(offset, busy=True)
    assert files() == 7
    flush(14, busy=None)
    assert merged()
    flush(15, busy=True)
    flush(16, busy=True)
    assert files() == 2
    flush(17, busy=False)
    assert merged()
    flush(18, busy=True)
    view.install_from(ROWS, applied_offset=19, epoch=3)
    flush(20, busy=None)
    flush(21, busy=None)
    assert merged(), "a new database is a quiet one"


def test_options_that_a_full_disk_does_not_take_fail_no_flush(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        asked = 0

        def __init__(self, database: Rdict) -> None:
            self.flush = database.flush

        def set_options(self, _: dict[str, str]) -> None:
            self.asked += 1
            raise RuntimeError("IO error: Unable to persist options.: No space left on device")

    full = Full(filled(view)._database)
    with monkeypatch.context() as patched:
        patched.setattr(view, "_database", full)
        for _ in range(2):
            view.flush(busy=True)
    assert full.asked == 2, "it is asked again"
    assert view.flushed_offset == 7


def test_offsets_only_go_up(view: View) -> None:
    filled(view)
    for offset in (7, 6, -1):
        with pytest.raises(InternalError):
            view.commit([], applied_offset=offset, epoch=3)
    view.commit([], applied_offset=8, epoch=4)
    assert (view.applied_offset, view.applied_epoch) == (8, 4)


def test_the_digest_is_that_of_the_rows_whatever_way_they_came(view: View) -> None:
    model = MemoryRows()
    histories: list[list[RowWrite]] = [
        [(b"\x10a", b"1"), (b"\x20b", b"")],
        [(b"\x10a", b"2"), (b"\x20b", None), (b"\x30c", None)],
        [(b"\x10a", b"2"), (b"\x10b", b"x")],
        [(b"\x10a", None), (b"\x10b", None)],
    ]
    for offset, writes in enumerate(histories):
        view.commit(writes, applied_offset=offset, epoch=0)
        model.write(writes)
        assert list(view.rows_in_key_order()) == model.items()
        assert view.digest() == digest_of(model.items())
    assert view.digest() == bytes(16)


def test_the_digest_tells_key_from_value() -> None:
    assert row_digest(b"ab", b"c") != row_digest(b"a", b"bc")


def test_reopening_brings_back_everything(tmp_path: Path) -> None:
    view = filled(View.open(tmp_path / "view"))
    digest = view.digest()
    view.close()
    view.close()
    view = View.open(tmp_path / "view")
    assert (view.applied_offset, view.applied_epoch, view.flushed_offset) == (7, 3, 7)
    assert view.digest() == digest
    assert list(view.rows_in_key_order()) == ROWS
    view.close()


def test_only_a_flush_makes_an_offset_durable(view: View) -> None:
    filled(view)
    assert view.flushed_offset == -1
    view.flush()
    assert view.flushed_offset == 7
    view.commit([(b"\x10a", b"9")], applied_offset=9, epoch=3)
    assert view.flushed_offset == 7


CRASH = """
import os, signal, sys
from pathlib import Path
from rlmm.view.view import View
view = View.open(Path(sys.argv[1]))
view.commit([(b"\\x10a", b"flushed")], applied_offset=1, epoch=1)
view.flush()
view.commit([(b"\\x10a", b"not flushed"), (b"\\x10b", b"x")], applied_offset=2, epoch=1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_crash_takes_back_what_was_not_flushed_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "view"
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(path)], env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert done.returncode == -signal.SIGKILL
    assert [file.stat().st_size for file in path.glob("*.log")] == [0], "no write-ahead log"
    view = View.open(path)
    assert (view.applied_offset, view.flushed_offset) == (1, 1)
    assert list(view.rows_in_key_order()) == [(b"\x10a", b"flushed")]
    assert view.digest() == digest_of([(b"\x10a", b"flushed")])
    view.close()


def test_a_view_in_use_is_a_conflict(view: View, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="in use"):
        View.open(tmp_path / "view")


def test_a_damaged_view_is_kept_aside_and_an_empty_one_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in ("garbage\n", "MANIFEST-009999\n"):
        filled(View.open(tmp_path / "view")).close()
        (tmp_path / "view" / "CURRENT").write_text(content)
        view = View.open(tmp_path / "view")
        assert view.applied_offset == -1
        assert list(view.rows_in_key_order()) == []
        view.close()
        assert (tmp_path / "view.damaged" / "CURRENT").read_text() == content
        assert "is kept as view.damaged and made again" in caplog.text
        shutil.rmtree(tmp_path / "view")


def test_damage_under_a_scan_is_corrupt_data_and_no_end(tmp_path: Path) -> None:
    rows = [(b"\x10%06d" % number, os.urandom(100)) for number in range(2000)]
    view = View.open(tmp_path / "view")
    view.commit(rows, applied_offset=1, epoch=0)
    view.close()
    (table,) = (tmp_path / "view").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 500] = bytes(500)
    table.write_bytes(data)
    view = View.open(tmp_path / "view")
    with pytest.raises(CorruptData, match="restart the node"):
        list(view.rows_in_key_order())
    with pytest.raises(CorruptData):
        list(view.scan(b"\x01", b"\xf0", reverse=True))
    with pytest.raises(CorruptData):
        list(map(view.get, (key for key, _ in rows)))
    view.close()


def test_a_closed_view_is_to_be_asked_again(tmp_path: Path) -> None:
    view = filled(View.open(tmp_path / "view"))
    view.close()
    with pytest.raises(RetryLater):
        view.get(b"\x10a")
    with pytest.raises(RetryLater):
        view.scan(b"\x10", b"\x20")
    with pytest.raises(RetryLater):
        view.flush()
    with pytest.raises(RetryLater):
        view.commit([], applied_offset=9, epoch=3)


def test_a_snapshot_replaces_everything(view: View) -> None:
    filled(view)
    view.install_from(iter(OTHER_ROWS), applied_offset=20, epoch=5)
    assert (view.applied_offset, view.applied_epoch, view.flushed_offset) == (20, 5, 20)
    assert list(view.rows_in_key_order()) == OTHER_ROWS
    assert view.digest() == digest_of(OTHER_ROWS)
    view.commit([(b"\x10a", None)], applied_offset=21, epoch=5)
    assert view.digest() == digest_of(OTHER_ROWS[1:])


def test_a_snapshot_never_takes_the_view_back(view: View) -> None:
    filled(view)
    with pytest.raises(InternalError):
        view.install_from(iter(OTHER_ROWS), applied_offset=6, epoch=5)
    assert list(view.rows_in_key_order()) == ROWS


@pytest.mark.parametrize(
    "rows", [ROWS[::-1], [*ROWS, ROWS[-1]], [(b"\x00", b"position")], [(b"\xf0", b"")]]
)
def test_rows_that_no_snapshot_holds_leave_the_old_view(
    view: View, rows: list[tuple[bytes, bytes]], tmp_path: Path
) -> None:
    filled(view)
    with pytest.raises(CorruptData):
        view.install_from(iter(rows), applied_offset=20, epoch=5)
    assert list(view.rows_in_key_order()) == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["view"]


def test_a_source_that_breaks_off_leaves_the_old_view(view: View, tmp_path: Path) -> None:
    filled(view)

    def broken() -> Iterator[tuple[bytes, bytes]]:
        yield OTHER_ROWS[0]
        raise CorruptData("cut", source="snapshot", position=9)

    with pytest.raises(CorruptData, match="cut"):
        view.install_from(broken(), applied_offset=20, epoch=5)
    assert list(view.rows_in_key_order()) == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["view"]


class Crash(BaseException):
    """The process dies here: nothing that follows is done."""


STEPS = ("build", "rename to old", "rename to view", "remove old")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_at_any_step_of_an_install_leaves_one_whole_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    path = tmp_path / "view"
    view = filled(View.open(path))
    done: list[str] = []

    def at(name: str) -> None:
        done.append(name)
        if name == f"{moment} {step}":
            raise Crash

    plant(monkeypatch, path, at)
    with pytest.raises(Crash):
        view.install_from(iter(OTHER_ROWS), applied_offset=20, epoch=5)
    monkeypatch.undo()
    view.close()
    again = View.open(path)
    swapped = "after rename to old" in done
    assert list(again.rows_in_key_order()) == (OTHER_ROWS if swapped else ROWS)
    assert again.applied_offset == (20 if swapped else 7)
    assert again.digest() == digest_of(again.rows_in_key_order())
    assert [each.name for each in tmp_path.iterdir()] == ["view"]
    again.close()


def plant(monkeypatch: pytest.MonkeyPatch, path: Path, at: object) -> None:
    """Call `at` before and after each step of an install; a crash does no clean-up."""
    assert callable(at)
    build, rename, rmtree = view_module._build, Path.rename, shutil.rmtree

    def slow_build(*arguments: object) -> None:
        at("before build")
        build(*arguments)  # type: ignore[arg-type]  # handed on as they came
        at("after build")

    def slow_rename(source: Path, target: Path) -> Path:
        name = "rename to view" if target == path else "rename to old"
        at(f"before {name}")
        found = rename(source, target)
        at(f"after {name}")
        return found

    def slow_remove(target: Path, ignore_errors: bool = False) -> None:
        if target.name.endswith(".old"):
            at("before remove old")
            rmtree(target)
            at("after remove old")
        elif not target.exists():
            return

    monkeypatch.setattr(view_module, "_build", slow_build)
    monkeypatch.setattr(Path, "rename", slow_rename)
    monkeypatch.setattr(shutil, "rmtree", slow_remove)


def test_an_old_view_alone_is_taken_back(tmp_path: Path) -> None:
    filled(View.open(tmp_path / "view")).close()
    (tmp_path / "view").rename(tmp_path / "view.old")
    view = View.open(tmp_path / "view")
    assert list(view.rows_in_key_order()) == ROWS
    view.close()


def test_a_half_built_new_view_is_removed(tmp_path: Path) -> None:
    (tmp_path / "view.new").mkdir()
    (tmp_path / "view.new" / "CURRENT").write_text("half")
    view = View.open(tmp_path / "view")
    assert view.applied_offset == -1
    assert [each.name for each in tmp_path.iterdir()] == ["view"]
    view.close()


def test_an_install_waits_for_scans_and_tells_readers_to_retry(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(view)
    scans = [view.rows_in_key_order()]
    seen = [next(scans[0])]
    pauses: list[float] = []

    class Pause:
        def wait(self, seconds: float) -> None:
            """The scan goes on over what it began with; everybody else waits."""
            pauses.append(seconds)
            with pytest.raises(RetryLater, match="replaced"):
                view.get(b"\x10a")
            seen.extend(scans.pop())

    monkeypatch.setattr("rlmm.view.view.threading.Event", Pause)
    view.install_from(iter(OTHER_ROWS), applied_offset=9, epoch=4)
    assert seen == ROWS
    assert pauses == [view_module.SWAP_PAUSE_S]
    assert list(view.rows_in_key_order()) == OTHER_ROWS


def test_an_install_gives_up_on_a_scan_that_never_ends(
    view: View, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(view).flush()
    monkeypatch.setattr(view_module, "SWAP_ATTEMPTS_MAX", 1)
    scan = view.rows_in_key_order()
    next(scan)
    with pytest.raises(Conflict, match="in use"):
        view.install_from(iter(OTHER_ROWS), applied_offset=9, epoch=4)
    del scan
    again = View.open(tmp_path / "view")
    assert list(again.rows_in_key_order()) == ROWS
    again.close()
