"""The options that every job has: where Spark runs, where the tier is, how to report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from kafka_formats.errors import InvalidRequest

ENVIRONMENT_OPTIONS = "STRANDLINE_PIPELINE_OPTIONS"
"""JSON of options that stand below those of the command line. `strandline pipeline --config` hands
the settings' stores over here: an environment does not show in a process list.
"""

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="STRANDLINE_SPARK_MASTER",
        help="Spark master, such as spark://host:7077. Default: what spark-submit says, else all "
        "cores of this machine.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="Spark configuration `key=value`; may be repeated."),
]
TierOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        help="An option of the data source `key=value`, such as "
        "`strandline.s3.endpoint=http://127.0.0.1:9000`; may be repeated.",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help="The bucket alone: s3://bucket/prefix or file:///folder; no node is asked."
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="STRANDLINE_URL", help="Address of a node to ask."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="STRANDLINE_TOKEN_FILE",
        help="File that holds the node's bearer token.",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write the report as JSON to this file, too.")
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the report as JSON on standard output.")
]


def key_values(given: Iterable[str] | None, *, option: str) -> dict[str, str]:
    """`key=value` texts as a dict; InvalidRequest names the one that is none. Values may hold a
    secret, so only the part before `=` is ever shown.
    """
    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidRequest(f"{key[:60]!r} must look like key=value", field=option)
        pairs[key] = value
    return pairs


def tier_options(
    options: Iterable[str] | None, store: str | None, url: str | None, token_file: Path | None
) -> dict[str, str]:
    """What the command line and the environment say of the tier, as data source options."""
    found = _from_environment()
    named = {
        "strandline.store": store,
        "strandline.url": url,
        "strandline.token.file": None if token_file is None else str(token_file),
    }
    found |= {key: value for key, value in named.items() if value is not None}
    return found | key_values(options, option="--option")


def _from_environment() -> dict[str, str]:
    text = os.environ.get(ENVIRONMENT_OPTIONS)
    if text is None:
        return {}
    try:
        given = json.loads(text)
    except ValueError:
        raise InvalidRequest("is not JSON", field=ENVIRONMENT_OPTIONS) from None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest("must be an object of texts", field=ENVIRONMENT_OPTIONS)
    return given
