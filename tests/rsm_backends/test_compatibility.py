"""Stores that lack something of S3: used with the words that doctor finds."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from rsm_backends.store_config import COMPATIBILITY, Compatibility, StoreConfig
from strandline.doctor.stores import check_store
from tests.rsm_backends.checking_s3 import serving
from tests.rsm_backends.conformance import CHECKS
from tests.rsm_backends.stores import opened

CHECKED = (
    "create_only_leaves_what_is_there",
    "a_put_with_a_wrong_checksum_stores_nothing",
    "a_damaged_part_or_object_is_refused",
    "an_aborted_upload_is_gone",
)


@asynccontextmanager
async def lacking(sound: StoreConfig, *lacks: Compatibility) -> AsyncIterator[StoreConfig]:
    """The store `sound` behind a server that refuses what older stores do."""

    async def hand_on(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        refusal = refused(request, body)
        if refusal is not None:
            return refusal
        url = URL(f"{sound.endpoint_url}{request.raw_path}", encoded=True)
        headers = {k: v for k, v in request.headers.items() if k != "Content-Length"}
        async with session.request(
            request.method,
            url,
            headers=headers,
            data=io.BytesIO(body),
            skip_auto_headers=["Content-Type"],
        ) as answer:
            told = {k: v for k, v in answer.headers.items() if k not in ("Server", "Date")}
            if request.method == "HEAD":
                if "no-checksums" in lacks:
                    told = {k: v for k, v in told.items() if "checksum" not in k.lower()}
                return web.Response(status=answer.status, headers=told)
            told.pop("Content-Length", None)
            data = await answer.read()
            return web.Response(status=answer.status, headers=told, body=data)

    def refused(request: web.Request, body: bytes) -> web.Response | None:
        deletes = request.method == "POST" and "delete" in request.query
        md5 = request.headers.get("Content-MD5")
        if md5 is not None:
            assert md5 == base64.b64encode(hashlib.md5(body).digest()).decode()
        if deletes and "single-deletes" in lacks:
            return no("NotImplemented", 501)
        if deletes and {"delete-md5", "no-checksums"} & set(lacks) and md5 is None:
            return no("InvalidRequest", 400)
        summed = any("checksum" in name.lower() for name in request.headers)
        if summed and "no-checksums" in lacks:
            return no("NotImplemented", 501)
        return None

    def no(code: str, status: int) -> web.Response:
        words = f"<Error><Code>{code}</Code><Message>unknown</Message></Error>"
        return web.Response(status=status, text=words, content_type="application/xml")

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{rest:.*}", hand_on)
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        serving(app) as url,
    ):
        yield replace(sound, endpoint_url=url, attempts_max=1)


@pytest.mark.parametrize("lacks", [("delete-md5",), ("single-deletes",), ("no-checksums",)])
async def test_doctor_finds_the_words_and_with_them_the_store_can_be_used(
    moto_store_config: StoreConfig, lacks: tuple[Compatibility, ...]
) -> None:
    async with lacking(moto_store_config, *lacks) as config:
        findings = {each.check: each for each in await check_store(config, None)}
        told = findings["store moto: compatibility"]
        words = ", ".join(f'"{word}"' for word in lacks)
        assert told.detail.endswith(f"in [stores.moto] set compatibility = [{words}]")
        config = replace(config, compatibility=frozenset(lacks))
        found = await check_store(config, None)
        assert [each.check for each in found if not each.ok] == []
        async with opened(config) as store:
            for check in CHECKS:
                if check.name in CHECKED:
                    await check.run(store, f"lacks-{'-'.join(lacks)}/{check.name}/")


async def test_a_store_that_lacks_nothing_needs_no_word(moto_store_config: StoreConfig) -> None:
    found = await check_store(moto_store_config, None)
    assert [each.check for each in found if "compatibility" in each.check or not each.ok] == []
    assert set(COMPATIBILITY) == {"delete-md5", "single-deletes", "no-checksums"}
