"""The jobs' command line: its table, its help, what the settings of a node hand over."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.store_options import store_configs
from pipeline.cli.main import COMMANDS
from pipeline.cli.options import ENVIRONMENT_OPTIONS, key_values, tier_options
from strandline.cli import pipeline_command
from strandline.cli.pipeline_command import options_of_settings
from strandline.settings_loading import load_settings
from strandline.store_configs import store_configs as stores_of_settings

SETTINGS = """
[stores.main]
kind = "s3"
bucket = "tier"
prefix = "a b/c-"
endpoint_url = "http://127.0.0.1:9000"
region = "eu-west-1"
addressing_style = "path"
credentials_file = "{credentials}"

[stores.old-disk]
kind = "filesystem"
path = "{folder}"
prefix = "x/"
"""
COMPARED = (
    "kind", "bucket", "prefix", "endpoint_url", "region", "path", "access_key_id",
    "secret_access_key", "session_token", "addressing_style",
)  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_job_says_with_an_example(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    text = inspect.getdoc(getattr(import_module(f"pipeline.cli.{module}"), attribute)) or ""
    assert text.splitlines()[0] == COMMANDS[name][1]
    assert re.search(rf"^Example: `strandline pipeline {name}\b", text, re.MULTILINE)


def test_the_stores_of_the_settings_are_the_jobs(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = a+/=b&c\n"
    )
    config = tmp_path / "strandline.toml"
    config.write_text(SETTINGS.format(credentials=credentials, folder=tmp_path))
    wanted = stores_of_settings(load_settings(config, {}).settings)
    found = store_configs(options_of_settings(config), {})
    assert found.keys() == wanted.keys()
    for name, store in wanted.items():
        assert [getattr(found[name], each) for each in COMPARED] == [
            getattr(store, each) for each in COMPARED
        ]


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_OPTIONS, '{"strandline.store": "s3://a", "x": "1"}')
    found = tier_options(["x=2=3"], "file:///tier", None, None)
    assert found == {"strandline.store": "file:///tier", "x": "2=3"}


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}'])
def test_an_environment_that_is_no_set_of_options_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_OPTIONS, text)
    with pytest.raises(InvalidRequest, match=ENVIRONMENT_OPTIONS):
        tier_options(None, None, None, None)


def test_a_malformed_option_shows_no_value() -> None:
    with pytest.raises(InvalidRequest, match=r"--conf: '' must look like key=value"):
        key_values(["=secret"], option="--conf")


def test_both_sides_name_the_same_variable() -> None:
    assert pipeline_command.ENVIRONMENT_OPTIONS == ENVIRONMENT_OPTIONS


def test_the_nodes_command_starts_the_jobs_process() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "strandline", "pipeline"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "strandline pipeline" in shown.stdout
    for name in COMMANDS:
        assert name in shown.stdout
