"""From a configuration to a store; what can never work is refused by the setting's name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InvalidRequest, NotFound
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import read_all
from tests.rsm_backends.stores import opened


def config(**changes: Any) -> StoreConfig:
    return StoreConfig(**({"name": "main", "kind": "s3", "bucket": "bkt"} | changes))


@pytest.mark.parametrize("kind", ["memory", "filesystem"])
async def test_an_opened_store_works_and_retries(kind: str, tmp_path: Path) -> None:
    async with opened(config(kind=kind, path=tmp_path)) as store:
        await store.put("a", b"data", crc32c=crc32c(b"data"))
        assert await read_all(store, "a") == b"data"
        assert repr(store).startswith("RetryingStore(")


async def test_a_filesystem_store_needs_an_existing_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        async with opened(config(kind="filesystem", path=tmp_path / "none")):
            pass


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": "ftp"}, "stores.main.kind"),
        ({"kind": "filesystem"}, "stores.main.path"),
        ({"bucket": ""}, "stores.main.bucket"),
        ({"access_key_id": "a"}, "stores.main.access_key_id"),
        ({"secret_access_key": "a"}, "stores.main.access_key_id"),
        ({"endpoint_url": "minio:9000"}, "stores.main.endpoint_url"),
        ({"endpoint_url": "ftp://minio"}, "stores.main.endpoint_url"),
        ({"endpoint_url": "http://user:pass@minio"}, "stores.main.endpoint_url"),
        ({"connect_timeout_s": 0}, "stores.main.connect_timeout_s"),
        ({"read_timeout_s": -1}, "stores.main.read_timeout_s"),
        ({"deadline_s": float("nan")}, "stores.main.deadline_s"),
        ({"connections_max": 0}, "stores.main.connections_max"),
        ({"attempts_max": 0}, "stores.main.attempts_max"),
    ],
)
def test_what_can_never_work_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        config(**changes)
    assert caught.value.field == field
    assert "pass" not in str(caught.value)


def test_a_configuration_crosses_a_process_border_and_hides_its_secrets() -> None:
    whole = config(access_key_id="KEYID", secret_access_key="SECRET", session_token="TOKEN")
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert not any(word in repr(whole) for word in ("KEYID", "SECRET", "TOKEN"))
