"""Blocking reads of objects into the caller's memory, for tasks, which have no event loop.

New memory for every piece costs as much as reading it, so the caller passes a buffer. Calls may
come from many threads at once. They raise the errors of the store port, but `RetryLater` only after
as many attempts as the store's policy allows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from kafka_formats.errors import InvalidRequest, NotFound, RetryLater
from rsm_backends.arguments import check_key, shown
from rsm_backends.filesystem import store_error
from rsm_backends.object_files import STAGING, ObjectFiles, OpenObject
from rsm_backends.retrying import RetryPolicy
from rsm_backends.store_config import StoreConfig

_Answer = TypeVar("_Answer")


class BlockingObject(Protocol):
    """One object, open for reading."""

    @property
    def object_bytes(self) -> int | None:
        """The size of the whole object in bytes, once an answer to a read reported it; before that,
        and for files, None.
        """

    def read_into(self, buffer: memoryview, start: int) -> int:
        """Fill `buffer` from byte `start` on; returns the bytes read, fewer only at the end."""

    def close(self) -> None:
        """Free connection or file. Idempotent; must not be called while a read is under way."""


class BlockingStore(Protocol):
    """A store that is read by blocking calls."""

    def open(self, key: str, *, in_order_to: int | None = None) -> BlockingObject:
        """Open an object; NotFound is raised here or at the first read. `in_order_to` promises that
        one thread reads in order up to that byte (exclusive): then one request serves all reads.
        """

    def close(self) -> None:
        """Free connections and handles. Idempotent."""


def open_blocking(
    config: StoreConfig,
    *,
    wait: Callable[[float], None],
    monotonic: Callable[[], float],
    random_fraction: Callable[[], float],
) -> BlockingStore:
    """The store of `config`; the caller closes it. A filesystem store's folder must exist."""
    policy = RetryPolicy(attempts_max=config.attempts_max, deadline_s=config.deadline_s)
    return _RetryingReads(
        _open_backend(config, monotonic), policy, wait, monotonic, random_fraction
    )


def _open_backend(config: StoreConfig, monotonic: Callable[[], float]) -> BlockingStore:
    if config.kind == "s3":
        # Imported only when used, as in `open_store`.
        from rsm_backends.s3_blocking import S3Reads

        return S3Reads(config, monotonic=monotonic)
    if config.kind == "filesystem":
        assert config.path is not None, "StoreConfig checks this"
        return _FileReads(config.path)
    raise InvalidRequest(
        "a memory store cannot be read from another process: use s3 or filesystem",
        field=f"stores.{config.name}",
    )


class _FileReads:
    def __init__(self, root: Path) -> None:
        self._files = ObjectFiles(root)

    def open(self, key: str, *, in_order_to: int | None = None) -> BlockingObject:  # noqa: ARG002
        check_key(key)
        with _translated(key):
            try:
                return _FileObject(key, self._files.open_object(key))
            except NotFound:
                self._check_mounted()
                raise

    def _check_mounted(self) -> None:
        """Raise RetryLater for an empty folder, as is left when a disk is not mounted: readers
        treat a missing object as one that retention has deleted.
        """
        if all(name == STAGING for name in os.listdir(self._files.root)):
            raise RetryLater(
                f"the store's folder {str(self._files.root)!r} is empty: mount its disk"
            )

    def close(self) -> None:
        self._files.close()


class _FileObject:
    object_bytes = None

    def __init__(self, key: str, opened: OpenObject) -> None:
        self._key = key
        self._opened = opened

    def read_into(self, buffer: memoryview, start: int) -> int:
        filled = 0
        with _translated(self._key):
            while filled < len(buffer):
                size = self._opened.read_into(buffer[filled:], start + filled)
                if not size:
                    break
                filled += size
        return filled

    def close(self) -> None:
        self._opened.close()


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise store_error(error, key) from error


class _RetryingReads:
    """The rules of `RetryingStore` for blocking calls: only RetryLater is repeated, with full
    jitter, within one deadline. A repeated read starts over, since it is no larger than the buffer.
    """

    def __init__(
        self,
        store: BlockingStore,
        policy: RetryPolicy,
        wait: Callable[[float], None],
        monotonic: Callable[[], float],
        random_fraction: Callable[[], float],
    ) -> None:
        self._store = store
        self._policy = policy
        self._wait = wait
        self._monotonic = monotonic
        self._random_fraction = random_fraction

    def open(self, key: str, *, in_order_to: int | None = None) -> BlockingObject:
        opened = self.repeated(key, lambda: self._store.open(key, in_order_to=in_order_to))
        return _RetryingObject(self, key, opened)

    def close(self) -> None:
        self._store.close()

    def repeated(self, key: str, attempt: Callable[[], _Answer]) -> _Answer:
        """Repeat `attempt` until it succeeds or fails for good."""
        ends_at = self._monotonic() + self._policy.deadline_s
        for failures in range(1, self._policy.attempts_max + 1):
            try:
                return attempt()
            except RetryLater as error:
                wait_s = self._policy.wait_after_s(error, failures, self._random_fraction())
                no_time = self._monotonic() + wait_s >= ends_at
                if no_time or failures == self._policy.attempts_max:
                    raise
            self._wait(wait_s)
        raise AssertionError(f"the last round for {shown(key)} returns or raises")


class _RetryingObject:
    def __init__(self, store: _RetryingReads, key: str, opened: BlockingObject) -> None:
        self._store = store
        self._key = key
        self._opened = opened

    @property
    def object_bytes(self) -> int | None:
        return self._opened.object_bytes

    def read_into(self, buffer: memoryview, start: int) -> int:
        return self._store.repeated(self._key, lambda: self._opened.read_into(buffer, start))

    def close(self) -> None:
        self._opened.close()
