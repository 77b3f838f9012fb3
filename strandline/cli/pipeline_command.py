"""`strandline pipeline`: starts the jobs in their own process, which the node never imports."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlencode

import typer

from kafka_formats.errors import InvalidRequest
from rsm_backends.store_config import StoreConfig
from strandline.cli.config_option import ConfigOption
from strandline.settings.loading import load_settings
from strandline.settings.store_configs import store_configs

ENVIRONMENT_OPTIONS = "STRANDLINE_PIPELINE_OPTIONS"
"""The variable that passes the settings' stores, secrets included, to the jobs: it is not visible
in `ps`.
"""

pipeline_app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@pipeline_app.command(
    "pipeline",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],  # `--help` is the job's own
    },
)
def pipeline_command(context: typer.Context, config: ConfigOption = None) -> NoReturn:
    """Jobs on Spark over the tiered history; `strandline pipeline` lists them.

    With `--config` the job uses the stores of the node's settings. All other options are the job's
    own: `strandline pipeline export --help`.

    Example: `strandline pipeline scrub --config /etc/strandline/strandline.toml`
    """
    if find_spec("pyspark") is None:
        raise InvalidRequest(
            "PySpark is not installed here: pip install 'strandline[pipeline]' in the environment "
            "that starts the jobs"
        )
    environment = dict(os.environ)
    if config is not None:
        environment[ENVIRONMENT_OPTIONS] = json.dumps(options_of_settings(config))
    arguments = [sys.executable, "-m", "pipeline", *(context.args or ["--help"])]
    os.execve(sys.executable, arguments, environment)  # noqa: S606  no shell is wanted


def options_of_settings(config: Path) -> dict[str, str]:
    """The stores of a settings file as options of the data source (docs/PIPELINE.md)."""
    options: dict[str, str] = {}
    for name, store in store_configs(load_settings(config).settings).items():
        options |= _store_options(f"strandline.store.{name}", store)
    return options


def _store_options(option: str, store: StoreConfig) -> dict[str, str]:
    prefix = urlencode({"prefix": store.prefix})
    if store.kind == "filesystem":
        assert store.path is not None, "StoreConfig checks this; settings know no other kind"
        return {option: f"{store.path.resolve().as_uri()}?{prefix}"}
    style = {"auto": None, "path": "true", "virtual": "false"}[store.addressing_style]
    found = {
        option: f"s3://{store.bucket}?{prefix}",
        f"{option}.s3.endpoint": store.endpoint_url,
        f"{option}.s3.region": store.region,
        f"{option}.s3.path-style": style,
        f"{option}.s3.ca.file": None if store.ca_bundle is None else str(store.ca_bundle),
        f"{option}.s3.access.key": store.access_key_id,
        f"{option}.s3.secret.key": store.secret_access_key,
        f"{option}.s3.session.token": store.session_token,
        f"{option}.s3.compatibility": ",".join(sorted(store.compatibility)) or None,
    }
    return {key: value for key, value in found.items() if value is not None}
