"""What a server answers to a list, with status 200, is a page, or an error to ask again for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from botocore import handlers

from kafka_formats.errors import RetryLater
from rsm_backends.s3 import S3Store
from rsm_backends.store_config import StoreConfig

ENTRY = (
    "<Contents><Key>a</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
)
PAGE = f"<ListBucketResult><IsTruncated>false</IsTruncated>{ENTRY}</ListBucketResult>"
NAMED = PAGE.replace("<List", '<?xml version="1.0" encoding="UTF-8"?>\n<List', 1)
ERROR = "<Error><Code>InternalError</Code><Message>an error in a page's place</Message></Error>"


@asynccontextmanager
async def store_that_answers(body: str) -> AsyncIterator[S3Store]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body, content_type="application/xml")

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    store = await S3Store.open(
        StoreConfig(
            name="main",
            kind="s3",
            bucket="tier",
            endpoint_url=f"http://127.0.0.1:{port}",
            access_key_id="key",
            secret_access_key="secret",
            addressing_style="path",
        )
    )
    try:
        yield store
    finally:
        await store.close()
        await runner.cleanup()


@pytest.mark.parametrize("body", [PAGE, NAMED, PAGE.replace("<List", "\n <List", 1)])
async def test_a_page_is_read_once(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_through(*_: object) -> bool:
        raise AssertionError("parsed for an error that its first tag denies")

    monkeypatch.setattr(handlers, "_looks_like_special_case_error", looked_through)
    async with store_that_answers(body) as store:
        page = await store.list_page("")
    assert [(each.key, each.size) for each in page.objects] == [("a", 7)]


@pytest.mark.parametrize(
    "body",
    [
        ERROR,
        f'<?xml version="1.0" encoding="UTF-8"?>\n{ERROR}',
        f"<!-- <ListBucketResult> -->{ERROR}",
        PAGE[:-30],
        f"{PAGE[:60]}",
        "<ListBucketResult",
    ],
)
async def test_what_is_no_whole_page_is_never_taken_for_one(body: str) -> None:
    async with store_that_answers(body) as store:
        with pytest.raises(RetryLater):
            await store.list_page("")


VERSIONS = (
    "<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a</NextKeyMarker>"
    "<Version><Key>a</Key><VersionId>{}</VersionId><Size>7</Size></Version></ListVersionsResult>"
)


async def test_a_page_of_versions_without_its_place_leaves_none_of_them_out() -> None:
    """MinIO names no version after an object without versions; of others a key is no place."""
    async with store_that_answers(VERSIONS.format("null")) as store:
        assert (await store.versions_below("")).next_cursor == "a\nnull"
    async with store_that_answers(VERSIONS.format("v1")) as store:
        with pytest.raises(RetryLater, match="NextKeyMarker"):
            await store.versions_below("")
    endless = VERSIONS.format("v1").replace(
        "<Version>", "<NextVersionIdMarker>v1</NextVersionIdMarker><Version>"
    )
    async with store_that_answers(endless) as store:
        page = await store.versions_below("")
        with pytest.raises(RetryLater, match="same page again"):
            await store.versions_below("", cursor=page.next_cursor)
