"""The named stores over HTTP: those of the settings and those that segments name."""

from __future__ import annotations

import json
from dataclasses import replace

from api.http.tokens import Role
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.format.custom_metadata import CustomMetadata
from rlm.stores.store_usage import NOT_OURS
from rlmm.segment import SegmentState
from strandline.settings.settings import Settings
from strandline.settings.store_configs import store_locations
from tests.api.fakes import make_node, make_segment


async def test_segments_are_counted_by_the_store_that_they_name() -> None:
    node = make_node(anonymous_role=Role.READ)
    elsewhere = CustomMetadata("gone", 1, 2, 3, 4, 5, 6).encode()
    node.manager.segments = [
        make_segment(0),
        replace(make_segment(1), state=SegmentState.DELETE_SEGMENT_STARTED),
        replace(make_segment(2), custom_metadata=elsewhere),
        replace(make_segment(3), custom_metadata=b"somebody else's"),
        replace(make_segment(5), custom_metadata=None),
        make_segment(4, SegmentState.COPY_SEGMENT_STARTED),
    ]
    node.rlm.troubles = [NodeProblem(ProblemArea.STORE, "second", "it does not answer")]
    async with node.client() as client:
        stores = (await client.get("/v1/stores")).json()["stores"]
    assert [(each["name"], each["segments"], each["size_bytes"]) for each in stores] == [
        (NOT_OURS, 2, 2000), ("gone", 1, 1000), ("main", 2, 2000), ("second", 0, 0),
    ]  # fmt: skip
    assert [each["configured"] for each in stores] == [False, False, True, True]
    assert [each["default"] for each in stores] == [False, False, True, False]
    assert stores[3]["problem"] == "it does not answer"


async def test_a_store_says_where_it_is_but_not_how_to_get_in() -> None:
    node = make_node(anonymous_role=Role.READ)
    settings = Settings.model_validate(
        {
            "stores": {
                "main": {
                    "kind": "s3",
                    "bucket": "tier",
                    "prefix": "t/",
                    "endpoint_url": "http://127.0.0.1:9000",
                    "credentials_file": "/etc/the-keys",
                    "profile": "the-profile",
                },
                "second": {"kind": "filesystem", "path": "/mnt/tier"},
            }
        }
    )
    node = replace(node, context=replace(node.context, store_locations=store_locations(settings)))
    async with node.client() as client:
        text = (await client.get("/v1/stores?counted=false")).text
    stores = json.loads(text)["stores"]
    assert [each["location"] for each in stores] == [
        {
            "kind": "s3",
            "bucket": "tier",
            "prefix": "t/",
            "endpoint_url": "http://127.0.0.1:9000",
            "region": "us-east-1",
            "addressing_style": "auto",
            "path": None,
        },
        {
            "kind": "filesystem",
            "bucket": None,
            "prefix": "",
            "endpoint_url": None,
            "region": None,
            "addressing_style": None,
            "path": "/mnt/tier",
        },
    ]
    assert [(each["segments"], each["size_bytes"]) for each in stores] == [(None, None)] * 2
    assert "the-" not in text
