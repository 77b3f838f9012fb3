"""GETs past most of botocore: the same bytes, and the general way after anything unusual."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound, Refused
from rsm_backends.s3 import S3Store
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all

DATA = bytes(range(256)) * 100
PLAIN = "tier/orders-b3JkZXJz/0/00000000000000000000-AA_-.log"
UNUSUAL = ("tier/a b", "tier/ü", "a//b", "/a", "a/", "a+b", "a%2Fb", "tier/./b", "tier/../b")


class Store:
    """An opened store that counts the GETs that went the general way."""

    def __init__(self, store: S3Store) -> None:
        self.store = store
        self.general: list[str] = []
        client: Any = store._client
        self._get_object = client.get_object
        client.get_object = self.get_object

    async def get_object(self, **parameters: Any) -> Any:
        self.general.append(parameters["Key"])
        return await self._get_object(**parameters)


@pytest.fixture
async def store(moto_store_config: StoreConfig) -> Any:
    opened = await S3Store.open(moto_store_config)
    yield Store(opened)
    await opened.close()


async def test_a_usual_key_never_goes_the_general_way(store: Store) -> None:
    await store.store.put(PLAIN, DATA, crc32c=crc32c(DATA))
    assert await read_all(store.store, PLAIN) == DATA
    for start, end in ((0, 1), (7, None), (0, 300), (25_000, 90_000)):
        assert await read_all(store.store, PLAIN, start=start, end=end) == DATA[start:end]
    assert store.general == []


async def test_a_missing_object_is_asked_for_again_and_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await read_all(store.store, "tier/nobody")
    assert store.general == ["tier/nobody"]


async def test_a_range_behind_the_end_is_empty(store: Store) -> None:
    await store.store.put(PLAIN, DATA, crc32c=crc32c(DATA))
    assert await read_all(store.store, PLAIN, start=len(DATA)) == b""


@pytest.mark.parametrize("key", UNUSUAL)
async def test_keys_that_a_url_cannot_hold_as_they_are_go_the_general_way(
    store: Store, key: str
) -> None:
    assert store.store._quick_gets is not None
    assert await store.store._quick_gets.get(key, None) is None


async def test_without_credentials_the_general_way_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = store.store._client
    monkeypatch.setattr(client, "_get_credentials", lambda: None)
    asked = []

    async def get_object(**parameters: Any) -> Any:
        asked.append(parameters["Key"])
        raise NoCredentialsError

    monkeypatch.setattr(client, "get_object", get_object)
    for _ in range(2):
        with pytest.raises(Refused, match="credentials"):
            await read_all(store.store, PLAIN)
    assert asked == [PLAIN, PLAIN]


async def test_credentials_that_are_there_later_are_used_then(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = store.store._client
    await store.store.put(PLAIN, DATA, crc32c=crc32c(DATA))

    async def presigned(*_: Any, **__: Any) -> str:
        raise NoCredentialsError

    with monkeypatch.context() as patched:
        patched.setattr(client, "generate_presigned_url", presigned)
        assert await read_all(store.store, PLAIN) == DATA
    assert await read_all(store.store, PLAIN) == DATA
    assert store.general == [PLAIN]


async def test_a_client_that_signs_otherwise_is_left_to_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = store.store._client
    await store.store.put(PLAIN, DATA, crc32c=crc32c(DATA))

    async def presigned(*_: Any, **__: Any) -> str:
        return "http://127.0.0.1/b/k?X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&X-Amz-Credential=a/b"

    monkeypatch.setattr(client, "generate_presigned_url", presigned)
    assert await read_all(store.store, PLAIN) == DATA
    assert store.general == [PLAIN]
