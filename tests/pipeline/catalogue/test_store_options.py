"""Store and node options: what they mean, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.node_address import node_address
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.catalogue.store_options import is_store_option, store_configs

KEYS = {"strandline.s3.access.key": "AKID", "strandline.s3.secret.key": "shh"}


@pytest.mark.parametrize(
    ("address", "bucket", "prefix"),
    [
        ("s3://tier", "tier", ""),
        ("s3://tier/", "tier", ""),
        ("s3://tier/deep/er", "tier", "deep/er/"),
        ("s3a://tier/deep/", "tier", "deep/"),
        ("s3://tier?prefix=tier-", "tier", "tier-"),
    ],
)
def test_an_address_in_s3_is_a_bucket_and_a_folder(address: str, bucket: str, prefix: str) -> None:
    main = store_configs({"strandline.store": address}, {})["main"]
    assert (main.kind, main.bucket, main.prefix) == ("s3", bucket, prefix)
    assert (main.endpoint_url, main.region, main.access_key_id) == (None, "us-east-1", None)


def test_a_folder_is_a_store_too() -> None:
    stores = store_configs({"strandline.store": "file:///mnt/the%20tier?prefix=t/"}, {})
    main = stores["main"]
    assert (main.kind, main.path, main.prefix) == ("filesystem", Path("/mnt/the tier"), "t/")


def test_names_of_options_are_case_insensitive_and_others_are_passed_over() -> None:
    options = {
        "STRANDLINE.Store": "s3://tier",
        "strandline.store.Archive": "s3://old",
        "Strandline.S3.Path-Style": "TRUE",
        "strandline.s3.endpoint": "http://127.0.0.1:9000",
        "strandline.store.archive.s3.endpoint": "http://127.0.0.1:9001",
        "subscribe": "orders",
        "strandline.isolation": "x",
        **KEYS,
    }
    stores = store_configs(options, {"AWS_REGION": "eu-west-1"})
    main, archive = stores["main"], stores["archive"]
    assert (main.addressing_style, main.region) == ("path", "eu-west-1")
    assert (main.endpoint_url, archive.endpoint_url) == (
        "http://127.0.0.1:9000",
        "http://127.0.0.1:9001",
    )
    assert (archive.access_key_id, archive.secret_access_key) == ("AKID", "shh")
    assert "shh" not in repr(stores)
    assert [name for name in options if is_store_option(name)] == list(options)[:5] + list(KEYS)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"strandline.store": "tier"}, r"strandline\.store: 'tier' must look like"),
        ({"strandline.store": "http://tier"}, "must look like"),
        ({"strandline.store": "file://mnt/tier"}, "must look like"),
        ({"strandline.store": "s3://key@tier"}, "endpoint and keys have options"),
        ({"strandline.store": "s3://tier/a?prefix=b"}, "not both"),
        ({"strandline.store": "s3://tier/a//b"}, r"strandline\.store: .*prefix"),
        ({"strandline.store.Über": "s3://t"}, r"strandline\.store\.Über: store names"),
        ({"strandline.store.a": "s3://t", "strandline.store.A": "s3://t"}, "given twice"),
        ({"strandline.store": "s3://t", "strandline.s3.speed": "1"}, "s3.speed: is unknown"),
        ({"strandline.store": "s3://t", "strandline.s3.path-style": "yes"}, "true or false"),
        ({"strandline.store": "s3://t", "strandline.s3.access.key": "a"}, "secret.key: is missing"),
        ({"strandline.store": "s3://t", "strandline.s3.session.token": "a"}, "session.token"),
        ({"strandline.store": "file:///t", "strandline.s3.region": "r"}, "on a file system"),
        (
            {"strandline.store": "s3://t", "strandline.store.b.s3.region": "r"},
            "no S3 store is named 'b'",
        ),
        ({"strandline.store": "s3://t", "strandline.s3.endpoint": "x"}, "endpoint_url"),
        ({"strandline.store": "s3://t", "strandline.s3.endpoint": "http://[h"}, "endpoint_url"),
        ({"strandline.store": "s3://t", "strandline.s3.endpoint": "http://h:x"}, "endpoint_url"),
        ({"strandline.store": "s3://t", "strandline.s3.endpoint": "http://a..b"}, "endpoint_url"),
        ({"strandline.store": "s3://t", "strandline.s3.endpoint": ""}, "s3.endpoint: is empty"),
        ({"strandline.store": "s3://t", "strandline.store.main.s3.region": " "}, "is empty"),
        ({"strandline.store": "s3://tier:x/a"}, r"strandline\.store: .*must look like"),
        ({"strandline.store": "s3://[tier"}, r"strandline\.store: .*must look like"),
    ],
)
def test_what_means_nothing_is_refused_by_name(options: dict[str, str], names: str) -> None:
    with pytest.raises(InvalidRequest, match=names):
        store_configs(options, {})


def test_a_node_is_an_address_and_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc\n")
    address = node_address(
        {"Strandline.URL": "https://n1:9480/", "strandline.token.file": str(token)}, {}
    )
    assert address is not None
    assert (address.url, address.token) == ("https://n1:9480", "abc")
    assert "abc" not in repr(address)
    by_variable = node_address({"strandline.url": "http://n1"}, {"STRANDLINE_TOKEN": "def"})
    assert by_variable is not None
    assert by_variable.token == "def"
    assert node_address({"subscribe": "x"}, {}) is None


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"strandline.url": "n1:9480"}, "must look like"),
        ({"strandline.url": "http://[n1"}, "must look like"),
        ({"strandline.url": "http://n1:x"}, "must look like"),
        ({"strandline.url": "http://a..b"}, "must look like"),
        ({"strandline.url": "http://me:pw@n1"}, r"give strandline\.token\.file"),
        ({"strandline.token.file": "/x"}, r"has no effect without strandline\.url"),
        ({"strandline.url": "http://n1", "strandline.token.file": "/none"}, "cannot read"),
        ({}, "the location of the tier is missing"),
    ],
)
def test_a_node_that_cannot_be_asked_is_told_by_option(options: dict[str, str], names: str) -> None:
    with pytest.raises(InvalidRequest, match=names):
        open_catalogue(options, {})
