"""Bad input and hard times against a real server: each a clear error, nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater, StrandlineError
from rsm_backends import s3
from rsm_backends.probe import probe
from rsm_backends.store import PART_BYTES_MIN, ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.real.minio import BUCKET, MinioServer
from tests.real.s3_admin import client, limited
from tests.real.toolbox import REPOSITORY
from tests.rsm_backends.conformance import CHECKS, Check
from tests.rsm_backends.stores import opened

pytestmark = pytest.mark.integration
DATA = b"the bytes of one object"
CRC = crc32c(DATA)


def allowing(*actions: str) -> dict[str, object]:
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": ["arn:aws:s3:::*"]}],
    }


async def every_operation(store: ObjectStore, key: str) -> dict[str, StrandlineError | None]:
    """What each operation of the port raises."""
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "put": lambda: store.put(key, DATA, crc32c=CRC),
        "create": lambda: store.put(key, DATA, crc32c=CRC, create_only=True),
        "get": lambda: read_all(store, key),
        "head": lambda: store.head(key),
        "list": lambda: store.list_page(key),
        "delete": lambda: store.delete_many([key, key + "2"]),
        "start": lambda: store.start_multipart(key),
        "part": lambda: store.put_part(key, "u", 1, DATA, crc32c=CRC),
        "abort": lambda: store.abort_multipart(key, "u"),
        "uploads": lambda: store.list_uploads(key),
    }
    raised: dict[str, StrandlineError | None] = {}
    for name, call in calls.items():
        raised[name] = None
        try:
            await call()
        except StrandlineError as error:
            raised[name] = error
    return raised


async def test_a_missing_bucket_is_named_by_every_operation_that_is_told(
    minio_store_config: StoreConfig,
) -> None:
    async with opened(replace(minio_store_config, bucket="never-made")) as store:
        raised = await every_operation(store, "missing/a")
    assert raised.pop("abort") is None  # MinIO: whatever was to be aborted is not there
    assert isinstance(raised.pop("part"), NotFound)  # MinIO looks for the upload first
    # Of an object it would be believed that it is gone.
    assert {type(error) for error in raised.values()} == {InvalidRequest}
    assert {str(error) for error in raised.values()} == {
        "bucket: bucket 'never-made' does not exist: create it, or correct the bucket setting"
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret_access_key": "not-the-secret-of-this-user"},
        {"access_key_id": "nobody-we-know-of"},
        {"session_token": "not-a-session-token"},
    ],
)
async def test_wrong_credentials_are_refused_without_showing_them(
    minio_store_config: StoreConfig, wrong: dict[str, Any]
) -> None:
    config = replace(minio_store_config, **wrong)
    async with opened(config) as store:
        raised = await every_operation(store, "wrong/a")
    assert {type(error) for error in raised.values()} == {Refused}
    secrets = (config.access_key_id, config.secret_access_key, config.session_token)
    for error in raised.values():
        assert not any(secret in str(error) for secret in secrets if secret is not None)
    assert "wrong or expired credentials" in str(raised["put"])


async def test_a_bucket_that_is_read_only_refuses_writes_and_nothing_changes(
    minio_store_config: StoreConfig,
) -> None:
    key = "read-only/a"
    async with opened(minio_store_config) as store:
        await store.put(key, DATA, crc32c=CRC)
    reader = limited(minio_store_config, allowing("s3:GetObject", "s3:ListBucket"))
    async with opened(reader) as store:
        assert await read_all(store, key) == DATA
        raised = await every_operation(store, key)
        assert await read_all(store, key) == DATA
    assert {name for name, error in raised.items() if error is None} == {"get", "head", "list"}
    assert {type(error) for error in raised.values() if error is not None} == {Refused}
    assert "grant the store's user this right on the bucket" in str(raised["put"])


async def test_a_key_outside_the_users_rights_is_refused(minio_store_config: StoreConfig) -> None:
    policy = allowing("s3:PutObject", "s3:GetObject")
    policy["Statement"][0]["Resource"] = [f"arn:aws:s3:::{BUCKET}/ours/*"]  # type: ignore[index]
    async with opened(limited(minio_store_config, policy)) as store:
        await store.put("ours/a", DATA, crc32c=CRC)
        with pytest.raises(Refused, match="'theirs/a'"):
            await store.put("theirs/a", DATA, crc32c=CRC)


async def test_a_key_that_the_store_cannot_keep_is_an_invalid_request(
    minio_store_config: StoreConfig,
) -> None:
    async with opened(minio_store_config) as store:
        with pytest.raises(InvalidRequest):
            await store.put("x" * 300, DATA, crc32c=CRC)
        assert (await store.list_page("xxx")).objects == ()


async def test_a_part_too_small_is_an_invalid_request(minio_store_config: StoreConfig) -> None:
    async with opened(minio_store_config) as store:
        upload_id = await store.start_multipart("small/a")
        parts = [
            await store.put_part("small/a", upload_id, number, DATA, crc32c=CRC)
            for number in (1, 2)
        ]
        with pytest.raises(InvalidRequest, match="EntityTooSmall"):
            await store.complete_multipart("small/a", upload_id, parts, crc32c=crc32c(DATA + DATA))
        await store.abort_multipart("small/a", upload_id)


async def test_the_server_itself_checks_what_arrives(
    minio_store_config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "check_crc32c", lambda *_, **__: None)
    monkeypatch.setattr(s3, "check_combined_crc32c", lambda *_, **__: None)
    async with opened(minio_store_config) as store:
        with pytest.raises(RetryLater, match="arrived damaged"):
            await store.put("checked/a", DATA, crc32c=CRC ^ 1)
        upload_id = await store.start_multipart("checked/a")
        with pytest.raises(RetryLater, match="arrived damaged"):
            await store.put_part("checked/a", upload_id, 1, DATA, crc32c=CRC ^ 1)
        part = await store.put_part("checked/a", upload_id, 1, DATA, crc32c=CRC)
        with pytest.raises(RetryLater, match="arrived damaged"):
            await store.complete_multipart("checked/a", upload_id, [part], crc32c=CRC ^ 1)
        await store.abort_multipart("checked/a", upload_id)
        assert (await store.list_page("checked/")).objects == ()


async def test_an_upload_has_the_checksum_of_the_whole_object(
    minio_store_config: StoreConfig,
) -> None:
    pieces = (bytes(PART_BYTES_MIN), DATA)
    async with opened(minio_store_config) as store:
        upload_id = await store.start_multipart("whole/a")
        parts = [
            await store.put_part("whole/a", upload_id, number, piece, crc32c=crc32c(piece))
            for number, piece in enumerate(pieces, 1)
        ]
        expected = crc32c(b"".join(pieces))
        await store.complete_multipart("whole/a", upload_id, parts, crc32c=expected)
        assert (await store.head("whole/a")).crc32c == expected


@pytest.fixture(scope="module")
def least_rights(minio_store_config: StoreConfig) -> StoreConfig:
    """The policy we tell users to give, for the test's bucket."""
    text = (REPOSITORY / "localstack" / "user-policy.json").read_text()
    return limited(minio_store_config, json.loads(text.replace(":::strandline", f":::{BUCKET}")))


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
async def test_the_rights_we_ask_users_for_are_enough(
    check: Check, least_rights: StoreConfig
) -> None:
    async with opened(least_rights) as store:
        await check.run(store, f"conformance-least-rights/{check.name}/")


async def test_the_probe_finds_nothing_wrong_and_leaves_nothing(
    least_rights: StoreConfig,
) -> None:
    async with opened(least_rights) as store:
        results = await probe(store, "probed/", "n1")
        assert [result for result in results if not result.ok] == []
        assert (await store.list_page("probed/")).objects == ()


async def test_the_probe_says_what_a_user_may_not(minio_store_config: StoreConfig) -> None:
    writer = limited(minio_store_config, allowing("s3:PutObject", "s3:GetObject"))
    async with opened(writer) as store:
        results = {result.name: result for result in await probe(store, "probed/", "n2")}
    assert {name for name, result in results.items() if result.ok} == {
        "put", "head", "get", "range", "create-only",
    }  # fmt: skip
    assert "not allowed" in results["list"].detail
    assert "grant the store's user this right" in results["delete"].detail


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[MinioServer]:
    with MinioServer(tmp_path) as server:
        yield server


async def test_work_goes_on_after_the_server_was_killed_and_came_back(
    own_server: MinioServer,
) -> None:
    async with opened(replace(own_server.store_config, attempts_max=2)) as store:
        await store.put("a", DATA, crc32c=CRC, create_only=True)
        upload_id = await store.start_multipart("b")
        part = await store.put_part("b", upload_id, 1, DATA, crc32c=CRC)
        own_server.kill()
        with pytest.raises(RetryLater, match="connection failed"):
            await store.head("a")
        own_server.start()
        assert await read_all(store, "a") == DATA
        assert await store.list_uploads("b") == (upload_id,)
        await store.complete_multipart("b", upload_id, [part], crc32c=CRC, create_only=True)
        assert await read_all(store, "b") == DATA


async def test_a_bucket_made_by_the_user_through_the_plain_client_is_the_same(
    minio_store_config: StoreConfig,
) -> None:
    plain = client(minio_store_config)
    plain.put_object(Bucket=BUCKET, Key="plain/a", Body=DATA)
    plain.close()
    async with opened(minio_store_config) as store:
        assert await read_all(store, "plain/a") == DATA
        assert (await store.head("plain/a")).size == len(DATA)


@pytest.mark.parametrize("sign_payloads", [False, True])
async def test_damage_on_the_way_is_refused_with_and_without_a_signed_body(
    minio_store_config: StoreConfig, sign_payloads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum in the headers is the store's to check, also where the body is unsigned."""
    config = replace(minio_store_config, sign_payloads=sign_payloads)
    monkeypatch.setattr(s3, "check_crc32c", lambda *_, **__: None)
    key, damaged = f"damage/{sign_payloads}", memoryview(b"THE bytes of one object")
    async with opened(config) as store:
        with pytest.raises(StrandlineError):
            await store.put(key, bytes(damaged), crc32c=CRC)
        upload_id = await store.start_multipart(key)
        with pytest.raises(StrandlineError):
            await store.put_part(key, upload_id, 1, damaged, crc32c=CRC)
        part = await store.put_part(key, upload_id, 1, memoryview(DATA), crc32c=CRC)
        await store.complete_multipart(key, upload_id, [part], crc32c=CRC)
        assert await read_all(store, key) == DATA
