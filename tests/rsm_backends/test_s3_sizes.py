"""A store that confirms no checksum may have cut what it says it stored: its size is asked for."""

from __future__ import annotations

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from rsm_backends.store import UploadedPart
from tests.rsm_backends.test_s3 import Answer, FakeClient, fake_store, refusal


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"ETag": "e", "ContentLength": 4}, None),
        ({"ETag": "e", "ContentLength": 3}, "4 bytes were sent, but by a HEAD it has 3"),
        ({"ETag": "e", "ContentLength": 5}, "4 bytes were sent, but by a HEAD it has 5"),
        (refusal("NoSuchKey", 404), "a HEAD does not find it"),
    ],
)
async def test_of_a_store_without_checksums_the_size_is_asked_for(
    found: Answer, wrong: str | None
) -> None:
    client = FakeClient(
        put_object=[{"ETag": "e"}],
        complete_multipart_upload=[{"ETag": "e"}],
        head_object=[found, found],
    )
    store = fake_store(client)
    part = UploadedPart(1, 4, crc32c(b"data"), "e")
    for write in (
        store.put("a", b"data", crc32c=crc32c(b"data")),
        store.complete_multipart("a", "u", [part], crc32c=crc32c(b"data")),
    ):
        if wrong is None:
            info = await write
            assert (info.size, info.crc32c) == (4, crc32c(b"data"))
        else:
            with pytest.raises(RetryLater, match=wrong):
                await write


async def test_a_replacement_is_not_asked_for_since_the_next_may_have_come() -> None:
    client = FakeClient(head_object=[{"ETag": "e", "ContentLength": 9}], put_object=[{"ETag": "f"}])
    info = await fake_store(client).replace("a", b"data", crc32c=crc32c(b"data"), etag="e")
    assert (info.size, info.etag) == (4, "f")
