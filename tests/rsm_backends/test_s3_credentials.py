"""Keys that change, or that come late, under a running process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Refused
from rsm_backends import s3_credentials
from rsm_backends.blocking_reads import BlockingStore, open_blocking
from rsm_backends.key_rounds import look_again
from rsm_backends.store import ObjectStore
from rsm_backends.streams import read_all
from tests.real.ports import free_ports
from tests.rsm_backends.checking_s3 import DATA, CheckingS3, checking_s3, serving
from tests.rsm_backends.stores import opened


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No keys of this machine; nobody waits between two looks."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setattr(s3_credentials, "LOOK_PAUSE_BASE_S", 0.0)
    monkeypatch.setattr(s3_credentials, "RENEWAL_PAUSE_S", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[CheckingS3]:
    async with checking_s3() as found:
        yield found


def write_keys(path: Path, key_id: str) -> Path:
    """As a rotation does: another file under the name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = s\n")
    fresh.rename(path)
    return path


@pytest.fixture(params=["credentials_file", "aws files"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Where the keys stand, and the settings that say so."""
    path = write_keys(tmp_path / "aws-credentials", "first")
    return path, {"credentials_file": path} if request.param == "credentials_file" else {}


async def every_way(store: ObjectStore) -> None:
    """Each kind of request succeeds."""
    await store.put("k", b"data", crc32c=crc32c(b"data"))
    assert (await store.head("k")).size == len(DATA)
    assert await read_all(store, "k") == DATA
    assert await read_all(store, "k", end=10) == DATA
    assert await read_all(store, "a b") == DATA


async def test_rotated_keys_are_read_again(
    server: CheckingS3, keys: tuple[Path, dict[str, Any]]
) -> None:
    path, settings = keys
    async with opened(server.config(**settings)) as store:
        await every_way(store)
        write_keys(path, "second")
        server.key_id = "second"
        server.asked.clear()
        await every_way(store)
        assert set(server.asked) == {"second"}, "the file's date tells, before a refusal does"
        server.key_id = "third"
        with pytest.raises(Refused, match="credentials_file"):
            await store.head("k")
        write_keys(path, "third")
        await every_way(store)


async def test_a_refusal_is_reason_enough_to_read_them_again(
    server: CheckingS3, keys: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, settings = keys
    monkeypatch.setattr(s3_credentials, "_date", lambda _: None)
    monkeypatch.setattr(s3_credentials, "RENEWAL_PAUSE_S", 0.0)  # they come faster here
    async with opened(server.config(**settings)) as store:
        for number, code in enumerate(("InvalidAccessKeyId", "ExpiredToken", "AccessDenied")):
            await every_way(store)
            server.key_id, server.refusal = f"number-{number}", code
            write_keys(path, server.key_id)
            await every_way(store)


async def test_somebody_who_asks_for_it_is_reason_too(
    server: CheckingS3, keys: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, settings = keys
    monkeypatch.setattr(s3_credentials, "_date", lambda _: None)
    monkeypatch.setattr(s3_credentials, "RENEWAL_PAUSE_S", 0.0)  # they come faster here
    async with opened(server.config(**settings)) as store:
        await every_way(store)
        write_keys(path, "second")
        server.key_id = "second"
        look_again()
        server.asked.clear()
        await every_way(store)
        assert set(server.asked) == {"second"}


async def test_a_file_that_is_half_written_leaves_the_keys_as_they_are(
    server: CheckingS3, tmp_path: Path
) -> None:
    path = write_keys(tmp_path / "credentials", "first")
    async with opened(server.config(credentials_file=path)) as store:
        await every_way(store)
        path.write_text("[default]\naws_access_key_id = fir")
        await every_way(store)


@pytest.fixture
def late_service(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port of a container's credentials service that is away."""
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{port}/keys")
    return port


def credentials_service() -> web.Application:
    async def answer(_: web.Request) -> web.Response:
        keys = {"AccessKeyId": "first", "SecretAccessKey": "s", "Token": "t"}
        return web.json_response(keys | {"Expiration": "2999-01-01T00:00:00Z"})

    app = web.Application()
    app.router.add_get("/keys", answer)
    return app


async def test_who_was_born_without_a_credentials_service_finds_it_later(
    server: CheckingS3, late_service: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server.config()) as store:
        for _ in range(2):
            with pytest.raises(Refused, match="credentials_file and profile") as told:
                await store.head("k")
        assert "access_key_id" not in str(told.value)
        async with serving(credentials_service(), late_service):
            await every_way(store)
        monkeypatch.setattr(s3_credentials, "LOOK_PAUSE_BASE_S", 0.0)
        await every_way(store)


async def test_one_look_serves_all_who_wait_and_the_next_comes_after_a_pause(
    server: CheckingS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_credentials, "LOOK_PAUSE_BASE_S", 3_600.0)
    looks: list[int] = []

    async def find(self: Any) -> None:
        looks.append(1)

    monkeypatch.setattr(s3_credentials.RenewedCredentials, "_find", find)
    async with opened(server.config()) as store:
        done = await asyncio.gather(*(store.head("k") for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in done] == [Refused] * 5
    assert len(looks) == 1


@pytest.fixture
def blocking(server: CheckingS3) -> Iterator[Any]:
    """Opens readers by plain calls, without waits."""
    made: list[BlockingStore] = []

    def open_it(**settings: Any) -> BlockingStore:
        made.append(
            open_blocking(
                server.config(**settings),
                wait=lambda _: None,
                monotonic=lambda: 0.0,
                random_fraction=lambda: 0.5,
            )
        )
        return made[-1]

    yield open_it
    for store in made:
        store.close()


def read(store: BlockingStore) -> bytes:
    buffer = memoryview(bytearray(len(DATA)))
    return bytes(buffer[: store.open("k").read_into(buffer, 0)])


async def test_plain_reads_follow_rotated_keys(
    server: CheckingS3, keys: tuple[Path, dict[str, Any]], blocking: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path, settings = keys
    store = blocking(**settings)
    assert await asyncio.to_thread(read, store) == DATA
    for number, dated in (("second", True), ("third", False)):
        if not dated:
            monkeypatch.setattr(s3_credentials, "_date", lambda _: None)
        server.key_id = number
        write_keys(path, number)
        assert await asyncio.to_thread(read, store) == DATA


async def test_plain_reads_find_keys_that_come_late(
    server: CheckingS3, tmp_path: Path, blocking: Any
) -> None:
    store = blocking()
    for _ in range(2):
        with pytest.raises(Refused, match=r"strandline\.s3\.access\.key"):
            await asyncio.to_thread(read, store)
    write_keys(tmp_path / "aws-credentials", "first")
    for _ in range(2):
        assert await asyncio.to_thread(read, store) == DATA
