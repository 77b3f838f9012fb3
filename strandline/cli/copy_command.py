"""`strandline copy`: one pass over log directories, without a service."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from kafka_formats.errors import InvalidRequest
from rlm.control.run_events import ignore_event
from rlm.control.why_not import WhyNot
from rlm.copy.run_report import CopyRunReport
from strandline.cli.config_option import ConfigOption
from strandline.cli.copy_progress import CopyProgressView
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import (
    console,
    errors,
    human_bytes,
    human_time,
    print_json,
    print_table,
    print_text,
)
from strandline.node import event_loop
from strandline.node.event_loop import leave_out_of_collections
from strandline.node.formatting import format_for
from strandline.node.node import Node
from strandline.settings.loading import load_settings
from strandline.settings.settings import Settings, StoreSettings


def copy_command(
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Make one pass, then stop. (`strandline node` runs as a service.)"
        ),
    ] = False,
    config: ConfigOption = None,
    log_dir: Annotated[
        list[Path] | None, typer.Option(help="A log directory of the broker; repeatable.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="`s3://bucket/prefix/` or `file:///directory`.")
    ] = None,
    endpoint_url: Annotated[
        str | None, typer.Option(help="Address of an S3-compatible store (with --store s3://).")
    ] = None,
    credentials_file: Annotated[
        Path | None, typer.Option(help="AWS shared credentials file (with --store s3://).")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the metadata; created if it does not exist.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Topic name or pattern; repeatable. Default: all topics."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Copy every sealed, stable segment of log directories to a store, once.

    Example: `strandline copy --log-dir /var/lib/kafka/data --once --store file:///backup/tier`
    """
    if not once:
        raise InvalidRequest("give --once for one pass, or run `strandline node` as a service")
    settings = _with_options(
        load_settings(config).settings,
        log_dirs=log_dir,
        store=_store_settings(store, endpoint_url, credentials_file),
        data_dir=data_dir,
        topics=topic,
    )
    if format_for(settings, only_if_absent=True):
        errors.print(f"created the data directory {settings.node.data_dir}; keep it", style="dim")
        if store is not None:
            _make_folder(settings.stores["main"])
    report = event_loop.run(_run(settings, quiet=json))
    _print(report, as_json=json)
    return ExitCode.OK if report.complete else ExitCode.INCOMPLETE


async def _run(settings: Settings, *, quiet: bool) -> CopyRunReport:
    view = CopyProgressView(errors)
    with contextlib.nullcontext() if quiet else view:
        node = await Node.open(settings, on_event=ignore_event if quiet else view.on_event)
        leave_out_of_collections()
        try:
            run = asyncio.ensure_future(node.remote_log.run_once())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, run.cancel)
            try:
                return await run
            except asyncio.CancelledError:
                errors.print("stopping: unfinished copies are cleaned up", style="yellow")
                raise KeyboardInterrupt from None
        finally:
            await node.close()


def _with_options(
    settings: Settings,
    *,
    log_dirs: list[Path] | None,
    store: StoreSettings | None,
    data_dir: Path | None,
    topics: list[str] | None,
) -> Settings:
    """The settings, overridden by the command line; if no topic is named, all topics."""
    kafka, topic_settings = settings.kafka, settings.topics
    if log_dirs:
        kafka = kafka.model_copy(update={"log_dirs": log_dirs})
    if not kafka.log_dirs:
        raise InvalidRequest("give a log directory with --log-dir (or in --config)")
    include = topics or topic_settings.include or ["*"]
    changed: dict[str, object] = {
        "kafka": kafka,
        "topics": topic_settings.model_copy(update={"include": include}),
    }
    if store is not None:
        changed |= {"stores": {"main": store}, "default_store": "main"}
    elif not settings.stores:
        raise InvalidRequest("give a store with --store (or in --config)")
    if data_dir is not None:
        changed["node"] = settings.node.model_copy(update={"data_dir": data_dir})
    return settings.model_copy(update=changed)


def _store_settings(
    store: str | None, endpoint_url: str | None, credentials_file: Path | None
) -> StoreSettings | None:
    if store is None:
        return None
    url = urlsplit(store)
    if url.scheme == "file" and url.path and not url.netloc:
        return StoreSettings(kind="filesystem", path=Path(url.path))
    if url.scheme == "s3" and url.netloc:
        return StoreSettings(
            kind="s3",
            bucket=url.netloc,
            prefix=url.path.lstrip("/"),
            endpoint_url=endpoint_url,
            credentials_file=credentials_file,
        )
    raise InvalidRequest(
        f"{store!r} is not the address of a store: write s3://bucket/prefix/ or file:///directory",
        field="--store",
    )


def _make_folder(store: StoreSettings) -> None:
    """Create the store's folder on the first run; later a missing folder may be an
    unmounted disk.
    """
    if store.path is None:
        return
    try:
        store.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            f"{store.path} can't be created ({error.strerror}): give a folder that you may write "
            "to",
            field="--store",
        ) from None


def _print(report: CopyRunReport, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(report) | {"complete": report.complete})
        return
    print_table(
        ["topic", "partition", "copied", "next offset", "then"],
        [
            (
                each.partition.topic,
                each.partition.partition,
                sum(copied.segment_id.partition == each.partition for copied in report.copied),
                each.next_offset if each.next_offset >= 0 else None,
                each.text,
            )
            for each in report.partitions
        ],
    )
    if any(each.why_not is WhyNot.BLOCKED for each in report.partitions):
        print_text(
            "blocked partitions are not copied: replace their damaged files by whole ones, or "
            "start `strandline node` with this data directory and run the command in the table"
        )
    console.print(f"{len(report.copied)} segments, {human_bytes(report.copied_bytes)} copied")
    for name, why in report.left_out:
        print_text(f"left out {name}: {why}")
    for problem in report.problems:
        print_text(f"problem at {problem.path}: {problem.message}")
    for pending in report.pending_clean_ups:
        print_text(
            f"objects of the failed copy {pending.segment_id.id} can be deleted from "
            f"{human_time(pending.due_ms)} on: run this command again then ({pending.why})"
        )
