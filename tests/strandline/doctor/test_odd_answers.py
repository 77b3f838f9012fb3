"""`strandline doctor` on a store, or a proxy before it, that answers everything with the same."""

from __future__ import annotations

import pytest

from strandline.doctor.stores import check_store
from tests.rsm_backends.lying_s3 import HTML, Answer, lying_s3

ETAG = ("ETag", '"e"')
"""With it a PUT counts, and all that follows is tried, too."""


@pytest.mark.parametrize(
    "told",
    [
        Answer(200, (), b"").raw(),
        Answer(200, (), HTML).raw(),
        Answer(200, (ETAG,), b"").raw(),
        Answer(200, (ETAG,), HTML).raw(),
        Answer(200, (ETAG,), b"<ListBucketResult/>").raw(),
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
    ids=["empty", "HTML", "empty, ETag", "HTML, ETag", "a list without anything", "no HTTP"],
)
async def test_each_check_ends_in_a_finding(told: bytes) -> None:
    async with lying_s3() as (liar, config):
        liar.told = told
        found = await check_store(config, None)
    wrong = [each for each in found if not each.ok]
    assert wrong, found
    for each in wrong:
        assert each.check.startswith(f"store {config.name}")
        assert each.detail
        assert len(each.detail.splitlines()) == 1
    listed = {each.check.rpartition(": ")[2]: each.ok for each in found}
    assert not listed.get("list", False), "nothing is taken for empty that did not say so"
