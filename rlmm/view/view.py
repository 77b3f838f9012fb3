"""The view: the rows in RocksDB. It caches the metadata log's state, so that the log need not be
replayed from its start.

The metadata log is the only write-ahead log, so RocksDB's own is off. Changes that were committed
here but not flushed are lost in a crash, and are applied again from the log. That is safe because
of three rules:

- there is one column family (a flush or a close acts on one, so two could disagree after a crash);
- applied offset, epoch and digest are in the same write batch as the rows they belong to;
- the log's start never moves above `flushed_offset`, which is read back from disk at open.

The digest is the sum modulo 2**128 of a hash over the logical rows. A write subtracts the hash of
the old row and adds that of the new one, so equal rows give an equal digest on every node, in
whichever order they changed.

Damage (RocksDB checks every block it reads) never returns a wrong row: it raises an error at once,
and the next `open` makes the view again from the newest snapshot and the log. The damaged view is
kept beside it as `view.damaged`.
"""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from kafka_formats.errors import Conflict, CorruptData, InternalError, RetryLater, StrandlineError
from rlmm.log.disk import sync_path
from rlmm.rows.keys import LOGICAL_END, LOGICAL_START
from rlmm.rows.reads import read_record_time
from rlmm.rows.rows import RowChange, RowWrite, in_slices
from rlmm.view.directory import beside, damage_mark, mark_damage, set_aside, settle_swap
from rlmm.view.rocksdb_manifest import check_manifest

BLOCK_CACHE_BYTES = 128 * 1024 * 1024
WRITE_BUFFER_BYTES = 32 * 1024 * 1024
BLOOM_BITS_PER_KEY = 10
MEMTABLE_BLOOM_SHARE = 0.05
LEVEL_ZERO_FILES = 2
LEVEL_ZERO_FILES_BUSY = 8
BYTES_A_SYNC = 1024 * 1024
INSTALL_BATCH_ROWS = 500
SWAP_ATTEMPTS_MAX = 600
SWAP_PAUSE_S = 0.05
DIGEST_BYTES = 16
NOTHING_APPLIED = -1

_POSITION_KEY = b"\x00"
_POSITION = struct.Struct(">qi16s")
_KEY_LENGTH = struct.Struct(">I").pack
_MODULUS = 2**128
_NONE_WRITTEN = (None, 0)
_MERGED_AT = "level0_file_num_compaction_trigger"
_SIGNS_OF_DAMAGE = (
    "Corruption",
    "checksum mismatch",
    "IO error: No such file or directory",
    "Invalid argument",
    "Not implemented",
)
"""Parts of RocksDB's texts that mean damage; a missing file is one that its CURRENT or MANIFEST
names. Troubles that pass by themselves, or with more space, rights or handles, are not among them.
"""


def row_digest(key: bytes, value: bytes) -> int:
    """The contribution of one logical row to the digest."""
    hashed = blake2b(_KEY_LENGTH(len(key)) + key + value, digest_size=DIGEST_BYTES)
    return int.from_bytes(hashed.digest(), "big")


def digest_of(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The digest of a whole set of rows, from scratch."""
    total = sum(row_digest(key, value) for key, value in rows) % _MODULUS
    return total.to_bytes(DIGEST_BYTES, "big")


class View:
    """One node's rows. Calls block, for microseconds, except `flush`, `install_from` and `close`:
    run those in a thread. `commit` is for one caller at a time.
    """

    def __init__(self, path: Path, database: Rdict) -> None:
        self._path = path
        self._use(database)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the view; a missing or damaged one is made anew. Conflict: another process has it
        open.
        """
        settle_swap(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if damage_mark(path).exists():
            set_aside(path, "damage was found while it was in use")
        try:
            return cls._opened(path)
        except CorruptData as error:
            set_aside(path, str(error))
            return cls._opened(path)

    @classmethod
    def _opened(cls, path: Path) -> Self:
        database = _open_database(path)
        try:
            return cls(path, database)
        except BaseException:
            database.close()
            raise

    def _use(self, database: Rdict) -> None:
        self._database = database
        self._applied_offset, self._applied_epoch, self._digest = _read_position(
            database, self._path
        )
        self._flushed_offset = self._applied_offset
        self._is_busy = False
        # The digests of the rows that the last commit wrote: the next commit often replaces them.
        self._last_digests: dict[bytes, tuple[bytes, int]] = {}

    @property
    def applied_offset(self) -> int:
        """The metadata offset after which the rows are the state; -1 before the first record."""
        return self._applied_offset

    @property
    def applied_epoch(self) -> int:
        """The log's epoch at `applied_offset`; -1 before the first."""
        return self._applied_epoch

    @property
    def flushed_offset(self) -> int:
        """The applied offset of the rows that survive any crash."""
        return self._flushed_offset

    @property
    def record_time_ms(self) -> int:
        """Record time, milliseconds since the epoch; 0 before the first record."""
        return read_record_time(self) or 0

    def digest(self) -> bytes:
        """16 bytes, equal on every node at the same applied offset."""
        return self._digest.to_bytes(DIGEST_BYTES, "big")

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._database.get(key)
        except Exception as error:
            raise self._failed(error) from error
        return value

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows as they are at this call; commits during the scan do not show in them. The iterator
        keeps the database open: read it to the end or drop it before `close`.
        """
        try:
            if reverse:
                return self._descending(start, end)
            options = _scanning()
            options.set_iterate_upper_bound(end)
            rows = self._database.iter(options)
            rows.seek(start)
        except Exception as error:
            raise self._failed(error) from error
        return self._ascending(rows, options)

    def _ascending(
        self,
        rows: RdictIter,
        options: ReadOptions,  # noqa: ARG002 - only kept alive
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the iterator. `options` own the upper bound's bytes, to which the iterator
        only points, so they are kept alive here.
        """
        while rows.valid():
            yield rows.key(), rows.value()
            rows.next()
        self._check(rows)

    def _descending(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = self._database.iter(_scanning())
        rows.seek_for_prev(end)
        if rows.valid() and rows.key() == end:
            rows.prev()
        return self._down(rows, start)

    def _down(self, rows: RdictIter, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        while rows.valid():
            key = rows.key()
            if key < start:
                return
            yield key, rows.value()
            rows.prev()
        self._check(rows)

    def _check(self, rows: RdictIter) -> None:
        """Raise if the iterator became invalid because of damage, and not at its end."""
        try:
            rows.status()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StrandlineError:
        """Translate the error; damage is marked beside the view, for the next `open`."""
        ours = _ours(error, self._path)
        if isinstance(ours, CorruptData):
            mark_damage(self._path, ours)
        return ours

    def rows_in_key_order(self) -> Generator[tuple[bytes, bytes], None, None]:
        """All logical rows, as they are at this call: like `scan`, but with one call per row
        instead of four.
        """
        options = _scanning()
        options.set_iterate_upper_bound(LOGICAL_END)
        database = self._database
        try:
            # Both show the same moment: there is no commit in between.
            found: Any = database.items(from_key=LOGICAL_START, read_opt=options)
            behind = database.iter(options)
        except Exception as error:
            raise self._failed(error) from error
        return self._all(found, behind, options)

    def _all(
        self,
        rows: Iterator[tuple[bytes, bytes]],
        behind: RdictIter,
        options: ReadOptions,  # noqa: ARG002 - only kept alive, as in `_ascending`
    ) -> Generator[tuple[bytes, bytes], None, None]:
        """The rows. `rows` also end silently at damage, so afterwards it is checked in `behind`
        that no row follows the last one.
        """
        last: tuple[bytes, bytes] | None = None
        for last in rows:
            yield last
        behind.seek(LOGICAL_START if last is None else last[0] + b"\0")
        if behind.valid():
            raise InternalError(f"the view {self._path} failed: a scan ended before its last row")
        self._check(behind)

    def commit(self, writes: Iterable[RowWrite], *, applied_offset: int, epoch: int) -> None:
        """Carry out the writes of all records up to `applied_offset`, atomically; each key at most
        once. Durable only after the next `flush`.
        """
        changes = [(key, self.get(key), value) for key, value in writes]
        self.commit_changes(changes, applied_offset=applied_offset, epoch=epoch)

    def commit_changes(
        self, changes: Iterable[RowChange], *, applied_offset: int, epoch: int
    ) -> None:
        """Commit like `commit`, for a caller that has read the present values already."""
        if applied_offset <= self._applied_offset:
            raise InternalError(
                f"metadata offset {applied_offset} comes after {self._applied_offset} was applied"
            )
        digest = self._digest
        digests: dict[bytes, tuple[bytes, int]] = {}
        batch = WriteBatch(raw_mode=True)
        for key, before, after in changes:
            assert LOGICAL_START <= key < LOGICAL_END, key
            if before is not None:
                written, of_it = self._last_digests.get(key, _NONE_WRITTEN)
                digest -= of_it if written == before else row_digest(key, before)
            if after is None:
                batch.delete(key)
            else:
                added = row_digest(key, after)
                digests[key] = after, added
                digest += added
                batch.put(key, after)
        digest %= _MODULUS
        batch.put(_POSITION_KEY, _encode_position(applied_offset, epoch, digest))
        try:
            self._database.write(batch)
        except Exception as error:
            raise self._failed(error) from error
        self._applied_offset, self._applied_epoch, self._digest = applied_offset, epoch, digest
        self._last_digests = digests

    def flush(self, *, busy: bool | None = None) -> None:
        """Make everything committed before this call durable. Blocks: run it in a thread.

        `busy`: True if flushes follow one another from now on; None: as before. While busy, more
        files are merged at once, and reads search more of them.
        """
        offset = self._applied_offset
        if busy is not None and busy != self._is_busy:
            self._merge_files_as(busy=busy)
        try:
            self._database.flush()
        except Exception as error:
            raise self._failed(error) from error
        self._flushed_offset = max(self._flushed_offset, offset)

    def _merge_files_as(self, *, busy: bool) -> None:
        files = LEVEL_ZERO_FILES_BUSY if busy else LEVEL_ZERO_FILES
        # RocksDB writes its options to the disk. If that is full, the flush may still succeed; the
        # next flush tries again.
        with suppress(Exception):
            self._database.set_options({_MERGED_AT: str(files)})
            self._is_busy = busy

    def close(self) -> None:
        """Flush and close. Idempotent. Iterators of `scan` must be gone."""
        try:
            self._database.close()
        except Exception as error:
            if type(error).__name__ != "DbClosedError":
                raise self._failed(error) from error

    def install_from(
        self, rows: Iterable[tuple[bytes, bytes]], *, applied_offset: int, epoch: int
    ) -> None:
        """Replace everything by these rows, which are the state after `applied_offset`.

        `rows` ascend by key. A crash at any moment leaves the old view or the new one, whole; so
        does an error raised by `rows`. Blocks: run it in a thread. The caller commits nothing
        meanwhile; readers get RetryLater during the swap, which waits for running scans.
        """
        if applied_offset < self._applied_offset:
            raise InternalError(
                f"a snapshot at {applied_offset} would take back {self._applied_offset}"
            )
        new, old = beside(self._path, ".new"), beside(self._path, ".old")
        shutil.rmtree(new, ignore_errors=True)
        try:
            _build(new, rows, applied_offset, epoch)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        self.close()
        _wait_until_free(self._path)
        self._path.rename(old)
        new.rename(self._path)
        sync_path(self._path.parent)
        shutil.rmtree(old)
        self._use(_open_database(self._path))


def _wait_until_free(path: Path) -> None:
    """Wait until no scan holds the closed database open: it would look for its files by name, and
    find its successor's. Conflict: a scan still does after `SWAP_ATTEMPTS_MAX` pauses.
    """
    never = threading.Event()
    for attempt in range(SWAP_ATTEMPTS_MAX):
        try:
            _open_database(path).close()
        except Conflict:
            if attempt + 1 == SWAP_ATTEMPTS_MAX:
                raise
            never.wait(SWAP_PAUSE_S)
        else:
            return


def _build(
    path: Path, rows: Iterable[tuple[bytes, bytes]], applied_offset: int, epoch: int
) -> None:
    """A new database with these rows, durable on return."""
    database = _open_database(path)
    try:
        digest = 0
        before = b""
        for part in in_slices(rows, INSTALL_BATCH_ROWS):
            batch = WriteBatch(raw_mode=True)
            for key, value in part:
                if not LOGICAL_START <= key < LOGICAL_END or key <= before:
                    raise CorruptData(
                        f"row key {key[:40].hex()} is out of order", source="snapshot"
                    )
                before = key
                batch.put(key, value)
                digest += row_digest(key, value)
            database.write(batch)
        batch = WriteBatch(raw_mode=True)
        batch.put(_POSITION_KEY, _encode_position(applied_offset, epoch, digest % _MODULUS))
        database.write(batch)
        database.flush()
    except StrandlineError:
        raise
    except Exception as error:
        raise _ours(error, path) from error
    finally:
        database.close()
    for file in path.iterdir():
        sync_path(file)
    sync_path(path)
    sync_path(path.parent)


def _open_database(path: Path) -> Rdict:
    check_manifest(path)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    # Adding a segment looks up its id first: a filter, which uses this share of the buffer, saves
    # the search in the memtable.
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_SHARE)
    options.set_keep_log_file_num(2)
    # RocksDB's default is sixteen threads: to start them took longer than to open a view's files.
    options.set_max_file_opening_threads(2)
    # Compactions sync as they go on: all at their end would hold up the log's syncs.
    options.set_bytes_per_sync(BYTES_A_SYNC)
    # A look-up's seek reads a block of every file at level 0, and writes are usually few.
    options.set_level_zero_file_num_compaction_trigger(LEVEL_ZERO_FILES)
    # Index and filter blocks stay outside the cache: large ones evict each other there.
    table = BlockBasedOptions()
    table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    table.set_cache_index_and_filter_blocks(False)
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    options.set_block_based_table_factory(table)
    try:
        # Name the family: otherwise an existing database is opened with its options file, which
        # has neither the cache nor the filters.
        database = Rdict(str(path), options, column_families={"default": options})
    except Exception as error:
        raise _ours(error, path) from error
    write_options = WriteOptions()
    _disable_wal(write_options)
    database.set_write_options(write_options)
    return database


def _disable_wal(options: WriteOptions) -> None:
    """`disable_wal` is a property, though the library's stub declares a method."""
    set_option: Callable[[object, str, object], None] = setattr
    set_option(options, "disable_wal", True)
    assert options.disable_wal is True  # type: ignore[comparison-overlap]  # the stub's error


def _encode_position(applied_offset: int, epoch: int, digest: int) -> bytes:
    return _POSITION.pack(applied_offset, epoch, digest.to_bytes(DIGEST_BYTES, "big"))


def _scanning() -> ReadOptions:
    """Read options with which RocksDB's own threads, not the caller's, remove the files that a scan
    was the last to use: that took 14 ms at the end of a scan over 3 million rows, after a
    compaction.
    """
    options = ReadOptions()
    options.set_background_purge_on_iterator_cleanup(True)
    return options


def _read_position(database: Rdict, path: Path) -> tuple[int, int, int]:
    try:
        value: bytes | None = database.get(_POSITION_KEY)
    except Exception as error:
        raise _ours(error, path) from error
    if value is None:
        return NOTHING_APPLIED, -1, 0
    if len(value) != _POSITION.size:
        raise CorruptData("the position row is malformed", source=str(path))
    applied_offset, epoch, digest = _POSITION.unpack(value)
    return applied_offset, epoch, int.from_bytes(digest, "big")


def _ours(error: Exception, path: Path) -> StrandlineError:
    """Translate RocksDB's errors, which have only a text."""
    if isinstance(error, StrandlineError):
        return error
    if type(error).__name__ == "DbClosedError":
        return RetryLater(f"the view {path} is closed, or being replaced by a snapshot")
    text = str(error)
    if "lock hold by" in text or "While lock file" in text:
        return Conflict(f"the view {path} is in use ({text})", reason="IN_USE")
    if any(sign in text for sign in _SIGNS_OF_DAMAGE):
        return CorruptData(
            f"{text}. The view is damaged: restart the node, and it is made again from the newest "
            "snapshot and the metadata log",
            source=str(path),
        )
    return InternalError(f"the view {path} failed: {text}")
