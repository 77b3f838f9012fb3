"""The page's files over HTTP: what browsers may keep, what they may do, and what is not there."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from api.http.page_files import PageFiles
from tests.api.fakes import FakeNode, make_node

INDEX = "<!doctype html><title>x</title>"
SCRIPT = "export const x = 1;"


def node_with(folder: Path) -> FakeNode:
    """Without a role for anybody: the page needs none."""
    node = make_node(anonymous_role=None)
    return replace(node, context=replace(node.context, page=PageFiles(folder)))


@pytest.fixture
def built(tmp_path: Path) -> FakeNode:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(INDEX)
    (tmp_path / "assets" / "index-abc.js").write_text(SCRIPT)
    (tmp_path / "built-from").write_text("secret")
    return node_with(tmp_path)


@pytest.mark.parametrize("path", ["/ui", "/ui/"])
async def test_the_page_is_asked_for_again_each_time_and_may_do_little(
    built: FakeNode, path: str
) -> None:
    async with built.client() as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.text) == (200, INDEX)
        assert answer.headers["cache-control"] == "no-cache"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_page_that_the_browser_has_is_not_sent_again(built: FakeNode) -> None:
    async with built.client() as client:
        first = await client.get("/ui")
        tag = first.headers["etag"]
        again = await client.get("/ui", headers={"If-None-Match": f'"other", W/{tag}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
        other = await client.get("/ui", headers={"If-None-Match": '"other"'})
        assert (other.status_code, other.text) == (200, INDEX)


async def test_a_file_with_its_digest_in_its_name_is_kept_and_compressed(built: FakeNode) -> None:
    async with built.client() as client:
        plain = await client.get("/ui/assets/index-abc.js", headers={"Accept-Encoding": "identity"})
        assert plain.text == SCRIPT
        assert "immutable" in plain.headers["cache-control"]
        assert plain.headers["content-type"].startswith("text/javascript")
        small = await client.get("/ui/assets/index-abc.js", headers={"Accept-Encoding": "gzip"})
        assert small.headers["content-encoding"] == "gzip"
        assert small.text == SCRIPT
        assert int(small.headers["content-length"]) == len(gzip.compress(SCRIPT.encode(), mtime=0))


@pytest.mark.parametrize(
    "path", ["/ui/assets/other.js", "/ui/assets/..%2Fbuilt-from", "/ui/built-from", "/ui/x"]
)
async def test_nothing_else_of_the_disk_is_served(built: FakeNode, path: str) -> None:
    async with built.client() as client:
        answer = await client.get(path)
        assert answer.status_code == 404
        assert "secret" not in answer.text


async def test_where_it_is_not_built_the_answer_says_how_to_build_it(tmp_path: Path) -> None:
    async with node_with(tmp_path).client() as client:
        answer = await client.get("/ui")
        assert (answer.status_code, answer.json()["kind"]) == (404, "not_found")
        assert "api/ui/build.py" in answer.json()["detail"]


async def test_an_address_that_could_hold_a_token_is_refused(built: FakeNode) -> None:
    async with built.client() as client:
        answer = await client.get("/ui", params={"token": "x"})
        assert (answer.status_code, answer.json()["field"]) == (400, "token")
