"""A `credential_process` that hangs is ended, and nobody waits for it longer than for a read."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError

from rsm_backends import s3_credentials
from rsm_backends.s3_credentials import BlockingCredentials, RenewedCredentials
from rsm_backends.store_config import StoreConfig
from tests.real.process_tree import runs

READ_TIMEOUT_S = 0.5
ENOUGH_S = 20.0
"""The helper would hang for much longer."""


OF_THE_PROFILE = "[default]\n{process}"
OF_A_SOURCE_PROFILE = (
    "[default]\nrole_arn = arn:aws:iam::123456789012:role/x\nsource_profile = other\n"
    "[profile other]\n{process}"
)


@pytest.fixture(params=[OF_THE_PROFILE, OF_A_SOURCE_PROFILE], ids=["profile", "source_profile"])
def pids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A helper that hangs, and a child of it; the file has a line with the pids of each."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    pids = tmp_path / "pids"
    helper = tmp_path / "helper.sh"
    helper.write_text(f"sleep 600 &\necho $$ $! >> {pids}\nwait\n")
    process = f"credential_process = /bin/sh {helper}\n"
    (tmp_path / "aws-config").write_text(request.param.format(process=process))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    return pids


def config() -> StoreConfig:
    return StoreConfig(
        name="main",
        kind="s3",
        bucket="b",
        endpoint_url="http://127.0.0.1:9",
        region="us-east-1",
        read_timeout_s=READ_TIMEOUT_S,
    )


def assert_ended(pids: Path) -> None:
    started = [int(pid) for pid in pids.read_text().split()]
    assert started
    end = time.monotonic() + ENOUGH_S
    while any(map(runs, started)):
        assert time.monotonic() < end, "a helper was left running"
        time.sleep(0.01)


def test_blocking_readers_are_told_in_time_and_one_look_serves_all(pids: Path) -> None:
    keys = BlockingCredentials(config(), time.monotonic)
    told: list[Exception] = []

    def ask() -> None:
        try:
            keys.get_frozen_credentials()
        except CredentialRetrievalError as error:
            told.append(error)

    began = time.monotonic()
    readers = [threading.Thread(target=ask) for _ in range(8)]
    for each in readers:
        each.start()
    for each in readers:
        each.join(ENOUGH_S)
    assert time.monotonic() - began < ENOUGH_S
    assert len(told) == 8
    assert_ended(pids)
    assert len(pids.read_text().splitlines()) == 1


async def test_the_event_loops_look_ends_its_helper_too(pids: Path) -> None:
    keys = RenewedCredentials(config())
    with pytest.raises(CredentialRetrievalError):
        await keys.get_frozen_credentials()
    await asyncio.to_thread(assert_ended, pids)
    await asyncio.sleep(0.1)  # the loop closes the ended helper's transport


def ends_soon(kind: type[Any], renewals: list[float], in_s: float) -> Any:
    """Keys that end soon, whose renewal hangs."""

    async def hang() -> None:
        renewals.append(time.monotonic())
        await asyncio.sleep(ENOUGH_S)

    def block() -> None:
        renewals.append(time.monotonic())
        time.sleep(4 * READ_TIMEOUT_S)
        raise TimeoutError

    renew = hang if kind is AioRefreshableCredentials else block
    until = datetime.now(UTC) + timedelta(seconds=in_s)
    return kind("key", "secret", "token", until, renew, "custom-process")


def has(keys: Any, within: Any) -> Any:
    keys._within = within
    keys._looks.begin()
    keys._looks.end(found=True)
    return keys


async def test_valid_keys_whose_renewal_hangs_are_used_and_nobody_waits_behind_another() -> None:
    renewals: list[float] = []
    within = ends_soon(AioRefreshableCredentials, renewals, 12 * 60)
    keys = has(RenewedCredentials(config()), within)
    began = time.monotonic()
    found = await asyncio.gather(*(keys.get_frozen_credentials() for _ in range(8)))
    assert {each.access_key for each in found} == {"key"}
    assert time.monotonic() - began < 6 * READ_TIMEOUT_S
    assert len(renewals) == 1
    assert (await keys.get_frozen_credentials()).access_key == "key"
    assert len(renewals) == 1, "the next one does not wait for another renewal at once"


async def test_keys_at_their_end_whose_renewal_hangs_fail_together() -> None:
    renewals: list[float] = []
    within = ends_soon(AioRefreshableCredentials, renewals, 60)
    keys = has(RenewedCredentials(config()), within)
    began = time.monotonic()
    told = await asyncio.gather(
        *(keys.get_frozen_credentials() for _ in range(8)), return_exceptions=True
    )
    assert {type(each) for each in told} == {CredentialRetrievalError}
    assert time.monotonic() - began < 6 * READ_TIMEOUT_S
    assert len(renewals) == 1


def test_blocking_readers_pause_after_a_renewal_that_failed() -> None:
    renewals: list[float] = []
    within = ends_soon(RefreshableCredentials, renewals, 12 * 60)
    keys = has(BlockingCredentials(config(), time.monotonic), within)
    assert keys.get_frozen_credentials().access_key == "key"
    under_way = keys._under_way
    assert under_way is not None
    assert under_way.result(ENOUGH_S).access_key == "key"
    for _ in range(3):
        assert keys.get_frozen_credentials().access_key == "key"
    assert len(renewals) == 1


def test_nobody_waits_for_a_look_that_was_given_up(
    pids: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the file with the keys is on a disk that hangs: nothing can end that."""
    hangs, looks = threading.Event(), []

    def find(self: BlockingCredentials) -> None:
        looks.append(1)
        hangs.wait(ENOUGH_S)

    monkeypatch.setattr(BlockingCredentials, "_find", find)
    monkeypatch.setattr(s3_credentials, "LOOK_PAUSE_BASE_S", 0.0)
    keys = BlockingCredentials(config(), time.monotonic)
    try:
        for _ in range(3):
            with pytest.raises(CredentialRetrievalError, match=r"no keys in 0\.5 s"):
                keys.get_frozen_credentials()
        assert len(looks) == 1
    finally:
        hangs.set()
