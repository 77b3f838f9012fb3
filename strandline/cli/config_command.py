"""`strandline config`: the settings in force, and the source of each value."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_formats.errors import StrandlineError
from strandline.cli.client import NodeClient, TokenFileOption
from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import print_json, print_table
from strandline.cli.setting_changes import PATH, set_text
from strandline.settings.fields import ANY_HOSTS
from strandline.settings.http import HttpSettings
from strandline.settings.loading import LoadedSettings, leaves, load_settings

CLUSTER_SETTINGS = "settings of the cluster"
UNTIL_RESTART = "the running node, until it restarts"
ANSWER_DEADLINE_S = 3.0
Document = dict[str, dict[str, Any]]
"""Key -> `value` and `origin`; `below` is the node's own value, if the running node has a different
one.
"""


def config_command(
    config: ConfigOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="STRANDLINE_URL",
            help="Address of the node with these settings; default: from its `[http]`.",
        ),
    ] = None,
    token_file: TokenFileOption = None,
) -> int:
    """Print the effective settings and the source of each value.

    The running node is asked for the settings of the cluster, which override those of its file and
    its environment, and for limits set at run time. If it does not answer, the last line says so.

    Example: `STRANDLINE_COPIER__PARALLEL_MAX=8 strandline config --config strandline.toml`
    """
    loaded = load_settings(config)
    document = settings_document(loaded)
    document |= _of_cluster(document, url or _own_url(loaded.settings.http), token_file)
    if json:
        print_json(document)
    else:
        print_table(
            ["setting", "value", "from"],
            [(key, _shown(each["value"]), each["origin"]) for key, each in document.items()],
        )
    return ExitCode.OK


def settings_document(loaded: LoadedSettings) -> Document:
    """The node's own settings, as `config --json` prints them."""
    return {
        key: {"value": _plain(value), "origin": loaded.origins.get(key, "default")}
        for key, value in leaves(loaded.settings)
    }


def _of_cluster(own: Document, url: str, token_file: Path | None) -> Document:
    """The settings of the cluster that are in force on this node, limits set at run time, and all
    settings for topics.
    """
    try:
        with NodeClient(url, token_file, timeout_s=ANSWER_DEADLINE_S) as client:
            in_force = client.get("/v1/node/settings")["in_force"]
            rows = client.get(PATH)["settings"]
    except StrandlineError as error:
        return {CLUSTER_SETTINGS: {"value": None, "origin": f"unknown: {error}"}}
    found = {}
    for each in in_force:
        key = each["setting"]
        if each["set_by"] is not None:
            origin = set_text(each["set_by"])
        elif key in own and own[key]["value"] != each["value"]:
            origin = UNTIL_RESTART
        else:
            continue
        found[key] = {"value": each["value"], "origin": origin, "below": own.get(key)}
    of_topics = (each for each in rows if each["scope"]["kind"] == "topic")
    return found | {
        f"{each['setting']} {each['scope']['name']}": {
            "value": each["value"],
            "origin": set_text(each),
        }
        for each in of_topics
    }


def _own_url(http: HttpSettings) -> str:
    scheme = "http" if http.tls_certificate_file is None else "https"
    host = "127.0.0.1" if http.host in ANY_HOSTS else http.host
    return f"{scheme}://[{host}]:{http.port}" if ":" in host else f"{scheme}://{host}:{http.port}"


def _shown(value: object) -> object:
    """A value for the table: lists as in the settings file, `-` for an empty text."""
    if isinstance(value, list):
        return json_module.dumps(value)
    return None if value == "" else value


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
