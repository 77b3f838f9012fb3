"""`strandline support-bundle`: collect files, write the archive, and list its members."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_formats.errors import StrandlineError
from strandline.cli.client import DEFAULT_URL, NodeClient, TokenFileOption
from strandline.cli.config_command import settings_document
from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import print_table, print_text
from strandline.cli.query_answers import topic_path
from strandline.doctor.doctor import examine
from strandline.doctor.host import machine, versions
from strandline.doctor.masking import Masker, known_secrets
from strandline.doctor.support_bundle import (
    Source,
    as_json,
    data_directory_sources,
    gather,
    installed,
    log_tail,
    write_bundle,
)
from strandline.node import ambient, event_loop
from strandline.settings.loading import LoadedSettings, load_settings
from strandline.settings.settings import Settings

AUDIT_LINES_MAX = 500


def support_bundle_command(
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Archive; default: strandline-support-TIME.tar.gz, here."),
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option(help="The node's log file, of which the last lines are taken.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="STRANDLINE_URL", help="Address of the node; default: that of the settings."
        ),
    ] = None,
    token_file: TokenFileOption = None,
) -> int:
    """Collect status, settings and logs for a bug report in one archive, without secrets.

    Has settings, versions, doctor's findings, the names in the data directory and, of a running
    node, status, audit and metrics; no records, keys, passwords or tokens.

    Example: `strandline support-bundle --config strandline.toml --log-file /var/log/strandline.log`
    """
    loaded, trouble = _load(config)
    settings = None if loaded is None else loaded.settings
    more = [] if token_file is None else [token_file]
    masker = Masker(known_secrets(settings, os.environ, more))
    sources = [
        Source("versions.json", "versions of the main libraries", lambda: as_json(versions())),
        Source("packages.txt", "every package that is installed, with its version", installed),
        Source(
            "machine.json", "processors, memory, limits, disks", lambda: as_json(machine(settings))
        ),
    ]
    if loaded is None:
        sources.append(Source("config-error.txt", "why the settings can't be used", trouble))
    else:
        sources += _node_sources(loaded, url, token_file)
    if log_file is not None:
        sources.append(Source("log.txt", f"last lines of {log_file}", lambda: log_tail(log_file)))
    now_ms = ambient.now_ms()
    when = datetime.fromtimestamp(now_ms / 1_000, UTC)
    path = output or Path(f"strandline-support-{when:%Y%m%dT%H%M%SZ}.tar.gz")
    members = write_bundle(
        path,
        gather(sources, masker),
        when=f"{when:%Y-%m-%d %H:%M:%SZ}",
        version=versions()["strandline"],
        now_ms=now_ms,
    )
    print_table(
        ["member", "holds", "bytes"],
        [(member.name, member.about, len(member.text.encode())) for member in members],
    )
    print_text(f"wrote {path}; look through it before you pass it on")
    return ExitCode.OK


def _load(config: Path | None) -> tuple[LoadedSettings | None, Any]:
    """The settings, or None and a source with the error."""
    try:
        return load_settings(config), None
    except StrandlineError as error:
        text = f"{error}\n"
        return None, lambda: text


def _node_sources(loaded: LoadedSettings, url: str | None, token_file: Path | None) -> list[Source]:
    settings = loaded.settings
    address = url or _address(settings)

    def ask(path: str) -> str:
        with NodeClient(address, token_file) as client:
            return as_json(client.get(path))

    def metrics() -> str:
        with NodeClient(address, token_file) as client:
            return b"".join(client.stream("/metrics", accept="text/plain")).decode()

    def partitions() -> str:
        with NodeClient(address, token_file) as client:
            topics = [each["topic"] for each in client.pages("/v1/topics", "topics")]
            return as_json(
                [
                    {"topic": topic} | each
                    for topic in topics
                    for each in client.pages(topic_path(topic), "partition_list")
                ]
            )

    def topics() -> str:
        with NodeClient(address, token_file) as client:
            return as_json(
                [
                    each | {"policy": client.get(f"{topic_path(each['topic'])}/policy")}
                    for each in client.pages("/v1/topics", "topics")
                ]
            )

    def audit() -> str:
        with NodeClient(address, token_file) as client:
            return as_json(
                list(islice(client.pages_of_node("/v1/audit", "lines"), AUDIT_LINES_MAX))
            )

    def doctor() -> str:
        return as_json([asdict(finding) for finding in event_loop.run(examine(settings))])

    return [
        Source("config.json", "every setting, and where its value came from",
               lambda: as_json(settings_document(loaded))),
        Source("doctor.json", "what `strandline doctor` finds", doctor),
        Source("node/cluster.json", f"identity of {address}, totals", lambda: ask("/v1/cluster")),
        Source("node/quorum.json", "its metadata log", lambda: ask("/v1/quorum")),
        Source("node/partitions.json", "its partitions, and why they wait", partitions),
        Source("node/topics.json", "its topics, with their policies", topics),
        Source("node/audit.json", f"its audit, the newest {AUDIT_LINES_MAX} lines", audit),
        Source("node/metrics.txt", "its metrics", metrics),
        *data_directory_sources(settings.node.data_dir),
    ]  # fmt: skip


def _address(settings: Settings) -> str:
    """The address at which the node of these settings listens."""
    http = settings.http
    if http.port == 0:
        return DEFAULT_URL
    host = "127.0.0.1" if http.host in ("0.0.0.0", "") else http.host  # noqa: S104 - compared
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if http.tls_certificate_file else 'http'}://{host}:{http.port}"
