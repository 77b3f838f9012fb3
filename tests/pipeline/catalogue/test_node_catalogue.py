"""The catalogue of a node, asked over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from api.http.tokens import Role
from api.models.coverage import coverage_line
from kafka_formats.errors import (
    CorruptData,
    InvalidRequest,
    NotFound,
    Refused,
    RetryLater,
    StrandlineError,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.node_address import NodeAddress
from pipeline.catalogue.node_catalogue import WHOLE_PARTITIONS_ONE_BY_ONE, NodeCatalogue
from pipeline.catalogue.node_client import NodeClient
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.catalogue.tiered_segment import Catalogue, PartitionBounds
from rlm.format.custom_metadata import CustomMetadata
from rlmm.rows.served_ranges import ServedRange
from rsm_backends.store_config import StoreLocation
from tests.api.fakes import TIP, FakeNode, make_node, make_segment, write_tokens
from tests.pipeline.catalogue.served_node import served

LINE = coverage_line((ServedRange(0, 99, make_segment(0).segment_id.id), make_segment(0)))
MAIN = StoreLocation(
    kind="s3",
    bucket="tier",
    prefix="t/",
    endpoint_url="http://127.0.0.1:9000",
    region="eu-west-1",
    addressing_style="path",
    path=None,
)
SECOND = replace(MAIN, kind="filesystem", bucket="", endpoint_url=None, path=Path("/mnt/tier"))


def a_node() -> FakeNode:
    node = make_node(anonymous_role=Role.READ)
    locations = {"main": MAIN, "second": SECOND}
    return replace(node, context=replace(node.context, store_locations=locations))


@contextmanager
def catalogue_of(node: FakeNode, **options: str) -> Iterator[Catalogue]:
    with served(node) as url:
        catalogue = open_catalogue({"Strandline.URL": url, **options}, {})
        try:
            yield catalogue
        finally:
            catalogue.close()


def test_topics_partitions_bounds_and_segments_are_those_of_the_node() -> None:
    with catalogue_of(a_node()) as catalogue:
        assert catalogue.topics() == ["payments"]
        assert catalogue.partitions("payments") == [TIP]
        assert catalogue.bounds(TIP) == PartitionBounds(0, 300)
        segments = catalogue.segments(TIP)
        assert [(each.first_offset, each.last_offset) for each in segments] == [
            (0, 99),
            (100, 199),
            (200, 299),
        ]
        first, expected = segments[0], make_segment(0)
        assert first.segment_id == expected.segment_id
        assert first.leader_epochs == expected.leader_epochs
        assert (first.store, first.log_bytes) == ("main", expected.size_bytes)
        assert first.max_timestamp_ms == expected.max_timestamp_ms
        assert expected.custom_metadata is not None
        assert first.objects == CustomMetadata.decode(expected.custom_metadata)
        cut = catalogue.segments(TIP, 150, 250)
        assert [(each.first_offset, each.last_offset) for each in cut] == [(150, 199), (200, 250)]


def test_what_is_new_is_seen_after_a_refresh() -> None:
    node = a_node()
    with catalogue_of(node) as catalogue:
        assert catalogue.bounds(TIP).earliest == 0
        del node.manager.segments[0]
        assert catalogue.bounds(TIP).earliest == 0
        catalogue.refresh()
        assert catalogue.bounds(TIP).earliest == 100


def test_who_asks_for_many_whole_partitions_gets_the_rest_from_one_answer() -> None:
    node = a_node()
    with catalogue_of(node) as catalogue:
        assert catalogue.bounds(TIP).earliest == 0
        one_by_one = [catalogue.segments(TIP) for _ in range(WHOLE_PARTITIONS_ONE_BY_ONE)]
        assert catalogue.segments(TIP) == one_by_one[0]
        del node.manager.segments[0]
        assert catalogue.segments(TIP) == one_by_one[0], "as at one moment"
        cut = catalogue.segments(TIP, 150, 250)
        assert [(each.first_offset, each.last_offset) for each in cut] == [(150, 199), (200, 250)]
        catalogue.refresh()
        assert catalogue.segments(TIP) == one_by_one[0][1:]


def test_stores_are_where_the_node_says_and_reached_as_the_options_say() -> None:
    secret = {"strandline.s3.access.key": "AKID", "strandline.s3.secret.key": "shh"}
    with catalogue_of(a_node(), **secret) as catalogue:
        main, second = catalogue.stores["main"], catalogue.stores["second"]
    assert (main.bucket, main.prefix, main.region) == ("tier", "t/", "eu-west-1")
    assert (main.endpoint_url, main.addressing_style) == ("http://127.0.0.1:9000", "path")
    assert (main.access_key_id, main.secret_access_key) == ("AKID", "shh")
    assert (second.kind, second.path) == ("filesystem", Path("/mnt/tier"))
    elsewhere = {
        "strandline.store.second": "s3://other/deep/",
        "strandline.store.second.s3.endpoint": "http://localhost:1",
        "strandline.s3.endpoint": "http://localhost:2",
    }
    with catalogue_of(a_node(), **elsewhere) as catalogue:
        main, second = catalogue.stores["main"], catalogue.stores["second"]
    assert (second.bucket, second.prefix, second.endpoint_url) == (
        "other",
        "deep/",
        "http://localhost:1",
    )
    assert (main.bucket, main.endpoint_url) == ("tier", "http://localhost:2")


def test_an_unnamed_store_beside_a_node_is_refused() -> None:
    with (
        pytest.raises(InvalidRequest, match=r"strandline\.store: .* give strandline\.store\.main"),
        catalogue_of(a_node(), **{"strandline.store": "s3://tier"}),
    ):
        pass


def test_segments_of_another_remote_storage_manager_are_in_the_default_store() -> None:
    node = a_node()
    node.manager.segments = [
        replace(make_segment(0), custom_metadata=b"theirs"),
        replace(make_segment(1), custom_metadata=None),
    ]
    with catalogue_of(node) as catalogue:
        assert [(each.store, each.objects) for each in catalogue.segments(TIP)] == [
            ("main", None),
            ("main", None),
        ]


def test_a_store_that_nobody_places_is_named() -> None:
    node = a_node()
    gone = CustomMetadata("gone", 1, 2, 3, 4, 5, 6).encode()
    node.manager.segments = [replace(make_segment(0), custom_metadata=gone)]
    with (
        catalogue_of(node) as catalogue,
        pytest.raises(InvalidRequest, match=r"strandline\.store\.gone"),
    ):
        catalogue.segments(TIP)


def test_what_is_not_tiered_is_not_found() -> None:
    with catalogue_of(a_node()) as catalogue:
        with pytest.raises(NotFound, match="topic orders has no partition"):
            catalogue.partitions("orders")
        with pytest.raises(NotFound, match="payments-7"):
            catalogue.bounds(TopicIdPartition("payments", TIP.topic_id, 7))
        with pytest.raises(InvalidRequest, match="topic"):
            catalogue.partitions("../quorum")


def test_a_token_opens_the_node_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    node = a_node()
    tokens = write_tokens(tmp_path / "tokens")
    node = replace(node, context=replace(node.context, tokens=tokens, anonymous_role=None))
    secret = tmp_path / "token"
    secret.write_text("reader-token\n")
    with catalogue_of(node, **{"strandline.token.file": str(secret)}) as catalogue:
        assert catalogue.topics() == ["payments"]
        assert "reader-token" not in repr(catalogue.__dict__)
    with served(node) as url:
        by_variable = open_catalogue({"strandline.url": url}, {"STRANDLINE_TOKEN": "reader-token"})
        by_variable.close()
        with pytest.raises(Refused):
            open_catalogue({"strandline.url": url}, {"STRANDLINE_TOKEN": "guess"})


@contextmanager
def speaking(body: bytes, *, announced: int) -> Iterator[str]:
    """A server that answers everything with these bytes, and announces so many."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(announced))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("body", "missing", "error", "names"),
    [
        (b"<html>", 0, InvalidRequest, "strandline.url"),
        (b'{"stores":', 20, RetryLater, "no complete answer"),
    ],
)
def test_who_does_not_speak_as_a_node_does_is_told(
    body: bytes, missing: int, error: type[StrandlineError], names: str
) -> None:
    with speaking(body, announced=len(body) + missing) as url, pytest.raises(error, match=names):
        open_catalogue({"strandline.url": url}, {})


@pytest.mark.parametrize(
    ("body", "missing", "error"),
    [
        (b'{"first_offset":0}\n', 0, CorruptData),
        (b"}{\n", 0, CorruptData),
        (b'{"first_off', 0, CorruptData),
        (LINE, 20, RetryLater),
    ],
)
def test_a_coverage_that_broke_off_is_never_taken_for_the_whole(
    body: bytes, missing: int, error: type[StrandlineError]
) -> None:
    with speaking(body, announced=len(body) + missing) as url:
        catalogue = NodeCatalogue(NodeClient(NodeAddress(url)), {}, "main")
        try:
            with pytest.raises(error):
                catalogue.segments(TIP)
        finally:
            catalogue.close()


def test_nobody_there_is_told_with_the_option() -> None:
    with pytest.raises(RetryLater, match=r"strandline\.url"):
        open_catalogue({"strandline.url": "http://127.0.0.1:9"}, {})
