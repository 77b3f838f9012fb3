"""The options of every job: Spark's master, the tier's location, the report."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.node_address import NODE_OPTIONS, URL_OPTION
from pipeline.catalogue.store_options import (
    S3_KEYS,
    STORE_OPTION,
    TARGET_S3_OPTION,
    is_store_option,
)
from pipeline.read.segment_slice import AIVEN_KEYS_OPTION

ENVIRONMENT_OPTIONS = "STRANDLINE_PIPELINE_OPTIONS"
"""JSON of options, overridden by the command line. `strandline pipeline --config` passes the
settings' stores here: an environment is not shown in a process list.
"""

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="STRANDLINE_SPARK_MASTER",
        help="Spark master, such as spark://host:7077. Default: spark-submit's master, else all "
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
        "--store", help="Ask the bucket, not a node: s3://bucket/prefix or file:///folder."
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


_OPTIONS_OF_JOBS = {"restore": ("maxbatchbytes",)}
"""Options of a query that a job passes on."""

_SECRET_NAME = re.compile(
    r"(password|passwd|secret|token|credential|secret[._-]?(access[._-]?)?key|ssl\.key\.pem)$",
    re.IGNORECASE,
)
"""Names whose values are secrets. A longer name means something else: a file with the secret
(`...tokenFile`), a provider, a mounted secret.
"""

_ELSEWHERE = {
    "--option": "the environment or files of the AWS tools (AWS_SECRET_ACCESS_KEY, "
    f"AWS_SHARED_CREDENTIALS_FILE), the JSON object in {ENVIRONMENT_OPTIONS}, or a node's settings "
    "(strandline pipeline --config FILE JOB)",
    "--conf": "a spark-defaults.conf that only you can read, in the folder that SPARK_CONF_DIR "
    "names; keys of the store not even there, but as docs/PIPELINE.md says under Where it runs",
    "--kafka-config": "a file (--kafka-config-file FILE)",
    "--producer-config": "a file (--kafka-config-file FILE)",
    "--catalog-property": ".pyiceberg.yaml, or PYICEBERG_CATALOG__NAME__PROPERTY in the "
    "environment",
    "--registry": "STRANDLINE_REGISTRY_USER=NAME:PASSWORD in the environment",
}


def key_values(given: Iterable[str] | None, *, option: str) -> dict[str, str]:
    """`key=value` texts of a file or of the command line as a dict; InvalidRequest names one that
    is malformed. Values may be secret, so only the part before `=` is ever shown.
    """
    pairs = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise InvalidRequest(f"{key[:60]!r} must look like key=value", field=option)
        pairs[key] = value
    return pairs


def typed_key_values(given: Iterable[str] | None, *, option: str) -> dict[str, str]:
    """Parse texts of the command line as `key_values` does. InvalidRequest also for a secret: every
    user of the machine can read the arguments of a process.
    """
    pairs = key_values(given, option=option)
    for key, value in pairs.items():
        if _SECRET_NAME.search(key):
            raise _readable(key, option)
        refuse_password(value, key, option=option)
    return pairs


def refuse_password(address: str, name: str, *, option: str) -> None:
    """Raise InvalidRequest if `address`, typed on the command line, contains a password."""
    try:
        password = urlsplit(address).password
    except ValueError:
        return
    if password:
        raise _readable(name, option)


def _readable(name: str, option: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} holds a secret, and every user of this machine can read it in the process list. "
        f"Give it by {_ELSEWHERE[option]}",
        field=option,
    )


def tier_options(
    options: Iterable[str] | None, store: str | None, url: str | None, token_file: Path | None
) -> dict[str, str]:
    """The tier's options from the command line and the environment, as data source options."""
    found = _from_environment()
    if store is not None and url == os.environ.get("STRANDLINE_URL"):
        url = token_file = None  # a typed --store wins over the environment's node
    named = {
        "strandline.store": store,
        "strandline.url": url,
        "strandline.token.file": None if token_file is None else str(token_file),
    }
    found |= {key: value for key, value in named.items() if value is not None}
    typed = list(options or ())
    names = Counter(text.partition("=")[0].lower() for text in typed)
    for name, count in names.items():
        if count > 1:
            raise InvalidRequest("is given twice; names are case-insensitive", field=name[:60])
    return found | typed_key_values(typed, option="--option")


def check_names(options: Mapping[str, str], *, job: str) -> None:
    """Raise InvalidRequest for an option that `job` does not know: it would be ignored, and the job
    would read or write a different place than meant.
    """
    known = {*NODE_OPTIONS, AIVEN_KEYS_OPTION, *_OPTIONS_OF_JOBS.get(job, ())}
    for name in options:
        low = name.lower()
        target = low.removeprefix(TARGET_S3_OPTION)
        if low in known or is_store_option(low) or (target != low and target in S3_KEYS):
            continue
        raise InvalidRequest(
            f"is not an option of the job {job}: known are {URL_OPTION}, {STORE_OPTION}, their "
            f"own options and those of a target, {TARGET_S3_OPTION}*; what the job reads is said "
            "by its own arguments (--help)",
            field=name[:60],
        )


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
