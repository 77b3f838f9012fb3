"""Credentials that are looked up when a request needs them, and again when they may have changed.

botocore looks once, when a client is made: keys that appear or are rotated later are never used.
Here keys are looked up at the first signature; again, with growing pauses, until some are found;
when their file changes; when a request is refused; and on SIGHUP (`rsm_backends.key_rounds`). If a
look-up fails, the earlier keys stay in use.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aiobotocore.credentials import AioCredentials
from aiobotocore.session import get_session as get_aio_session
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
)
from botocore.session import Session, get_session

from kafka_formats.errors import StrandlineError
from rsm_backends.credential_helpers import end_helpers_at
from rsm_backends.credentials_file import read_access_keys
from rsm_backends.key_rounds import current_round
from rsm_backends.store_config import StoreConfig

LOOK_PAUSE_BASE_S, LOOK_PAUSE_MAX_S = 1.0, 30.0
"""The pause between two look-ups that find nothing; it doubles."""
RENEWAL_PAUSE_S = 1.0
"""The pause between two look-ups after refusals, and between two checks of the file's date."""
RENEWED_FOR_SURE_S = 10 * 60
"""The time before their expiry from which botocore no longer uses keys without new ones."""

_FAILURES = (
    BotoCoreError, ClientError, StrandlineError, OSError, RuntimeError, ValueError, LookupError,
)  # fmt: skip
_METHOD = "strandline"
_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class _Looks:
    """Decides when to look up keys. Not thread-safe: its owner holds a lock."""

    def __init__(self, files: tuple[Path, ...], monotonic: Callable[[], float]) -> None:
        self._files = files
        self._monotonic = monotonic
        self._failures = 0
        self._not_before: float | None = None
        self._seen: tuple[object, ...] | None = None
        self._next_date_at = 0.0

    def is_due(self, *, has_keys: bool, refused: bool = False) -> bool:
        """True if keys should be looked up now."""
        now = self._monotonic()
        if self._not_before is not None and now < self._not_before:
            return False
        if not has_keys or refused:
            return True
        if self._seen is not None and self._seen[0] == current_round() and now < self._next_date_at:
            return False
        self._next_date_at = now + RENEWAL_PAUSE_S
        return self._seen != self._dates()

    def are_paused(self) -> bool:
        """True for a while after a look-up, or a renewal, that found nothing."""
        return (
            self._failures > 0
            and self._not_before is not None
            and self._monotonic() < self._not_before
        )

    def begin(self) -> None:
        """Note the files' dates before a look-up: the keys that it finds are at least as new."""
        self._seen = self._dates()

    def end(self, *, found: bool) -> None:
        """Start the pause after a look-up: growing if nothing was found, else `RENEWAL_PAUSE_S`."""
        self._failures = 0 if found else self._failures + 1
        pause_s = LOOK_PAUSE_BASE_S * 2.0 ** min(self._failures - 1, 10)
        self._not_before = self._monotonic() + (
            RENEWAL_PAUSE_S if found else min(pause_s, LOOK_PAUSE_MAX_S)
        )
        if not found:
            self._seen = None

    def _dates(self) -> tuple[object, ...]:
        return (current_round(), *(_date(path) for path in self._files))


class RenewedCredentials(AioCredentials):
    """Credentials of the client on the event loop.

    Keys are looked up and renewed by one task at a time, for which all requests wait together, at
    most `read_timeout_s`. If it fails, the earlier keys are used as long as they are valid.
    """

    def __init__(self, config: StoreConfig) -> None:
        super().__init__("", "", method=_METHOD)
        self._config = config
        self._within: Any = _given(config, AioCredentials)
        self._looks = _Looks(_files_of(config), asyncio.get_running_loop().time)
        self._under_way: asyncio.Task[ReadOnlyCredentials] | None = None

    async def load_credentials(self) -> RenewedCredentials:
        """Return the credentials, in place of botocore's chain of providers."""
        return self

    async def get_frozen_credentials(self) -> ReadOnlyCredentials:  # type: ignore[override]  # the stubs' mistake
        """The keys to sign with now; NoCredentialsError or CredentialRetrievalError if none."""
        return await self._keys(refused=False)

    async def are_others_than(self, refused: ReadOnlyCredentials) -> bool:
        """True if, after a refusal, keys are found that differ from the refused ones."""
        return await self._keys(refused=True) != refused

    async def _keys(self, *, refused: bool) -> ReadOnlyCredentials:
        if self._under_way is None or self._under_way.done():
            due = self._looks.is_due(has_keys=self._within is not None, refused=refused)
            if not due and not _is_renewed_now(self._within, self._looks):
                return _in_hand(self._within)
            self._under_way = asyncio.create_task(self._found(due))
            self._under_way.add_done_callback(_heard)
        return await asyncio.shield(self._under_way)  # a cancelled caller must not end the task

    async def _found(self, due: bool) -> ReadOnlyCredentials:
        succeeded = False
        try:
            async with asyncio.timeout(self._config.read_timeout_s):
                looked = await self._look() if due else True
                if self._within is None:
                    raise NoCredentialsError
                keys: ReadOnlyCredentials = await self._within.get_frozen_credentials()
            succeeded = looked and not _needs_renewal(self._within)
        except (*_FAILURES, TimeoutError) as error:
            if self._within is None or _needs_renewal(self._within, RENEWED_FOR_SURE_S):
                raise _unavailable(error) from error
            _log.warning(
                "the keys of bucket %s are still valid, but were not renewed (%s): check what "
                "credential_process, or the service with the keys, waits for",
                self._config.bucket, _unavailable(error),
            )  # fmt: skip
            return _in_hand(self._within)
        finally:
            self._looks.end(found=succeeded)
        return keys

    async def _look(self) -> bool:
        """True if keys were found; else the earlier ones remain."""
        self._looks.begin()
        try:
            found = await self._find()
        except _FAILURES:
            if self._within is None:
                raise
            return False
        self._within = found or self._within
        return found is not None

    async def _find(self) -> Any:
        config = self._config
        if config.credentials_file is not None:
            keys = await asyncio.to_thread(
                read_access_keys, config.credentials_file, config.profile
            )
            return AioCredentials(*keys)
        session = get_aio_session()
        end_helpers_at(session, config.read_timeout_s, blocking=False)
        return await session.get_credentials()


class BlockingCredentials(Credentials):
    """Credentials of blocking clients, used from many threads.

    Work that may hang (a look-up, the renewal of keys) runs in its own thread, one at a time;
    callers wait for it at most `read_timeout_s`. One that was given up is not waited for again:
    until it ends, the earlier keys are used, or requests fail at once.
    """

    def __init__(self, config: StoreConfig, monotonic: Callable[[], float]) -> None:
        super().__init__("", "", method=_METHOD)
        self._config = config
        self._within: Any = _given(config, Credentials)
        self._looks = _Looks(_files_of(config), monotonic)
        self._lock = threading.Lock()
        self._under_way: Future[ReadOnlyCredentials] | None = None
        self._given_up: Future[ReadOnlyCredentials] | None = None

    def load_credentials(self) -> BlockingCredentials:
        """Return the credentials, in place of botocore's chain of providers."""
        return self

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the keys to sign with; see `RenewedCredentials`."""
        return self._keys(refused=False)

    def are_others_than(self, refused: ReadOnlyCredentials) -> bool:
        """True if there are keys that differ from the refused ones; see `RenewedCredentials`."""
        return self._keys(refused=True) != refused

    def _keys(self, *, refused: bool) -> ReadOnlyCredentials:
        with self._lock:
            if self._under_way is None or self._under_way.done():
                due = self._looks.is_due(has_keys=self._within is not None, refused=refused)
                if not due and not _is_renewed_now(self._within, self._looks):
                    return _in_hand(self._within)
                self._under_way = _in_a_thread(partial(self._found, due))
            under_way = self._under_way
        if under_way is not self._given_up:
            try:
                return under_way.result(self._config.read_timeout_s)
            except TimeoutError:
                self._given_up = under_way
                _log.warning(
                    "a look-up of the keys of bucket %s has not ended in %g s: check what "
                    "credential_process, or the service or file with the keys, waits for",
                    self._config.bucket, self._config.read_timeout_s,
                )  # fmt: skip
        if self._within is None or _needs_renewal(self._within, RENEWED_FOR_SURE_S):
            raise _unavailable(
                TimeoutError(f"no keys in {self._config.read_timeout_s:g} s, and none before")
            )
        return _in_hand(self._within)

    def _found(self, due: bool) -> ReadOnlyCredentials:
        succeeded = False
        try:
            looked = self._look() if due else True
            if self._within is None:
                raise NoCredentialsError
            keys: ReadOnlyCredentials = self._within.get_frozen_credentials()
            succeeded = looked and not _needs_renewal(self._within)
        except _FAILURES as error:
            raise _unavailable(error) from error
        finally:
            self._looks.end(found=succeeded)
        return keys

    def _look(self) -> bool:
        """True if keys were found; else the earlier ones remain."""
        self._looks.begin()
        try:
            found = self._find()
        except _FAILURES:
            if self._within is None:
                raise
            return False
        self._within = found or self._within
        return found is not None

    def _find(self) -> Any:
        config = self._config
        if config.credentials_file is not None:
            return Credentials(*read_access_keys(config.credentials_file, config.profile))
        session = get_session()
        end_helpers_at(session, config.read_timeout_s, blocking=True)
        return session.get_credentials()


def _needs_renewal(keys: Any, within_s: int | None = None) -> bool:
    """True if the keys expire within a time; None: that from which botocore renews them."""
    needed = getattr(keys, "refresh_needed", None)
    return needed is not None and bool(needed(within_s))


def _is_renewed_now(keys: Any, looks: _Looks) -> bool:
    """True if a request renews the keys; after a failure only once they are about to expire."""
    return _needs_renewal(keys, RENEWED_FOR_SURE_S if looks.are_paused() else None)


def _in_hand(keys: Any) -> ReadOnlyCredentials:
    """The keys as they are: `get_frozen_credentials` would renew them."""
    if keys is None:
        raise NoCredentialsError
    frozen: ReadOnlyCredentials | None = getattr(keys, "_frozen_credentials", None)
    if frozen is None:
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token, keys.account_id)
    return frozen


def _heard(task: asyncio.Task[Any]) -> None:
    """Mark the task's error as retrieved: its callers get it, or have all been cancelled."""
    if not task.cancelled():
        task.exception()


def _in_a_thread(work: Callable[[], _Answer]) -> Future[_Answer]:
    """Run `work` in a daemon thread, for which the end of the process does not wait."""
    future: Future[_Answer] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised to the caller that waits
            future.set_exception(error)

    threading.Thread(target=run, name="look-for-keys", daemon=True).start()
    return future


def are_fixed(config: StoreConfig) -> bool:
    """True if the settings contain the keys, without a file that could have different ones."""
    return config.access_key_id is not None and config.credentials_file is None


def _given(config: StoreConfig, kind: type[Any]) -> Any:
    """The keys read together with the settings; used as long as their file can't be read."""
    if config.access_key_id is None:
        return None
    return kind(config.access_key_id, config.secret_access_key, config.session_token)


def _unavailable(error: Exception) -> BotoCoreError:
    if isinstance(error, NoCredentialsError | CredentialRetrievalError):
        return error
    return CredentialRetrievalError(
        provider="strandline", error_msg=f"{type(error).__name__}: {error}"
    )


def _files_of(config: StoreConfig) -> tuple[Path, ...]:
    """The files whose dates show that keys may have changed."""
    if config.credentials_file is not None:
        return (config.credentials_file,)
    session: Session = get_session()
    names = (session.get_config_variable(each) for each in ("credentials_file", "config_file"))
    return tuple(Path(os.path.expanduser(name)) for name in names if name)


def _date(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
