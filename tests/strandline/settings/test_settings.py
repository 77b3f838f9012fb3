"""Settings: file, environment, refusals, origins, and the page that documents them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import InvalidRequest
from strandline.settings.http import HttpSettings
from strandline.settings.loading import leaves, load_settings
from strandline.settings.settings import Settings
from tests.strandline.settings.settings_page import settings_page

PAGE = Path(__file__).resolve().parents[3] / "docs" / "SETTINGS.md"


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "strandline.toml"
    path.write_text(text)
    return path


def test_defaults_need_no_file() -> None:
    loaded = load_settings(None, {})
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}


def test_a_key_in_the_file_wins_over_the_default_and_the_environment_wins_over_both(
    tmp_path: Path,
) -> None:
    path = config(tmp_path, "[copier]\ninterval_s = 2.5\nparallel_max = 3\n")
    loaded = load_settings(path, {"STRANDLINE_COPIER__PARALLEL_MAX": "7"})
    assert loaded.settings.copier.interval_s == 2.5
    assert loaded.settings.copier.parallel_max == 7
    assert loaded.origins["copier.interval_s"] == str(path)
    assert loaded.origins["copier.parallel_max"] == "environment STRANDLINE_COPIER__PARALLEL_MAX"
    assert loaded.origins["copier.part_bytes"] == "default"


def test_a_store_can_come_from_the_environment_alone() -> None:
    loaded = load_settings(
        None,
        {"STRANDLINE_STORES__MAIN__KIND": "s3", "STRANDLINE_STORES__MAIN__BUCKET": "tier"},
    )
    assert loaded.settings.stores["main"].bucket == "tier"


def test_a_list_in_the_environment_is_json() -> None:
    loaded = load_settings(None, {"STRANDLINE_TOPICS__INCLUDE": '["orders", "logs.*"]'})
    assert loaded.settings.topics.include == ["orders", "logs.*"]
    with pytest.raises(InvalidRequest, match="JSON"):
        load_settings(None, {"STRANDLINE_TOPICS__INCLUDE": "orders,logs"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[copier]\nintervall_s = 2\n", "copier.intervall_s: unknown setting"),
        ("[coppier]\n", "coppier: unknown setting"),
        ("[copier]\ninterval_s = -1\n", "copier.interval_s"),
        ("[copier]\npart_bytes = 99999999999999999999\n", "copier.part_bytes"),
        ("[http]\nport = 70000\n", "http.port"),
        ('[http]\nhost = "0.0.0.0"\nanonymous_role = "admin"\n', "only on loopback"),
        ('[stores.main]\nkind = "s3"\n', "needs `bucket`"),
        ('[stores.main]\nkind = "gopher"\n', "stores.main.kind"),
        ('default_store = "other"\n[stores.main]\nkind = "s3"\nbucket = "b"\n', "'other'"),
        ("this is no toml", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load_settings(config(tmp_path, text), {})
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "name",
    ["STRANDLINE_COPY__INTERVAL_S", "STRANDLINE_COPIER_INTERVAL_S", "STRANDLINE_STORES__A__B"],
)
def test_an_unknown_variable_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        load_settings(None, {name: "1"})


def test_a_missing_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.toml"):
        load_settings(tmp_path / "nowhere.toml", {})


def test_every_setting_is_documented_golden() -> None:
    page = settings_page()
    if os.environ.get("STRANDLINE_GOLDEN") == "rewrite":
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run `make golden` and read the diff"
    assert all(f"`{key}`" in page for key, _ in leaves(Settings()))


@pytest.mark.parametrize(
    ("http", "quorum_address", "expected"),
    [
        ({}, "", "http://127.0.0.1:9480"),
        ({}, "127.0.0.1:9481", "http://127.0.0.1:9480"),
        ({}, "strand-1:9481", None),  # loopback is somebody else's there
        ({"host": "0.0.0.0"}, "strand-1:9481", "http://strand-1:9480"),
        ({"host": "::"}, "[fd00::1]:9481", "http://[fd00::1]:9480"),
        ({"host": "0.0.0.0"}, "", None),
        ({"host": "fd00::2"}, "[fd00::1]:9481", "http://[fd00::2]:9480"),
        ({"host": "10.0.0.4", "port": 0}, "strand-1:9481", None),  # not known before it listens
        ({"advertised": "proxy:443", "port": 0}, "", "http://proxy:443"),
        (
            {"host": "10.0.0.4", "tls_certificate_file": "c", "tls_key_file": "k"},
            "strand-1:9481",
            "https://10.0.0.4:9480",
        ),
    ],
)
def test_the_url_that_others_are_told_is_one_that_they_can_reach(
    http: dict[str, Any], quorum_address: str, expected: str | None
) -> None:
    assert HttpSettings(**http).registered(quorum_address) == expected
