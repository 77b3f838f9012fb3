"""`strandline migrate`: the move from Kafka's own metadata topic."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from kafka_formats.errors import InvalidRequest
from rlm.migration.examination import Examination, PartitionSummary, examine_topic
from rlm.migration.topic_checks import TOPIC, passed_over
from rlmm.segment import SegmentState
from strandline.cli.asking import command_group
from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.move_commands import (
    back_command,
    finish_command,
    start_command,
    status_command,
    switch_command,
)
from strandline.cli.output import console, errors, human_bytes, print_json, print_table
from strandline.cli.report_file import ReportOption, check_report, write_report
from strandline.doctor.formatted_identity import formatted_identity
from strandline.node import event_loop
from strandline.node.broker_connection import open_broker_view
from strandline.settings.kafka import ANNOUNCED
from strandline.settings.loading import load_settings
from strandline.settings.settings import Settings

migrate_app = command_group(
    "The move from Kafka's own metadata topic: check, start, switch, back, finish, status."
)


@migrate_app.command("check")
def check_command(
    config: ConfigOption = None,
    report: ReportOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> int:
    """Read Kafka's metadata topic to its end and say whether it can be moved; changes nothing.

    Every record is decoded and replayed by the rules of Kafka's own manager. Exit code 8 if
    anything prevents a move.

    Example: `strandline migrate check --config strandline.toml --report before.json`
    """
    check_report(report)
    found, kafka_cluster_id = event_loop.run(_examine(load_settings(config).settings))
    body = {"kafka_cluster_id": kafka_cluster_id, **as_json(found)}
    write_report(report, body)
    if json:
        print_json(body)
    else:
        _print(found)
    return ExitCode.OK if found.ok else ExitCode.INCOMPLETE


for _name, _command in {
    "start": start_command,
    "switch": switch_command,
    "back": back_command,
    "finish": finish_command,
    "status": status_command,
}.items():
    migrate_app.command(_name)(_command)


async def _examine(settings: Settings) -> tuple[Examination, str | None]:
    """The examination, and the id of the Kafka cluster that this node serves."""
    identity = formatted_identity(settings.node.data_dir)
    if identity is None:
        raise InvalidRequest(
            f"{settings.node.data_dir} is not formatted: run `strandline format` first",
            field="node.data_dir",
        )
    if settings.kafka.broker in ("", ANNOUNCED):
        raise InvalidRequest(
            "set it to host:port of this node's own broker: no plug-in reports it before the move",
            field="kafka.broker",
        )
    view = open_broker_view(
        settings.kafka, node_id=identity.node_id, kafka_cluster_id=identity.kafka_cluster_id
    )
    try:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=errors,
            transient=True,
        ) as bar:
            task = bar.add_task(TOPIC, total=None)

            def told(place: int, count: int, read: int, of: int) -> None:
                name = f"{TOPIC}: partition {place + 1} of {count}"
                bar.update(task, description=name, completed=read, total=of)

            return await examine_topic(view, told), identity.kafka_cluster_id
    finally:
        await view.close()


def as_json(found: Examination) -> dict[str, Any]:
    """The examination for scripts."""
    return {
        "ok": found.ok,
        "checks": [
            {"check": each.name, "ok": each.ok, "detail": each.detail} for each in found.checks
        ],
        "topic": [
            {
                "partition": each.partition,
                "start": each.start,
                "end": each.end,
                "records": each.records,
            }
            for each in found.reads
        ],
        "passed_over_by_kafka": passed_over(found.reads),
        "partitions": [_partition(each) for each in found.partitions],
    }


def _partition(each: PartitionSummary) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "topic_id": str(each.partition.topic_id),
        "partition": each.partition.partition,
        "metadata_partition": each.metadata_partition,
        "segments": {state.name: count for state, count in sorted(each.segments.items())},
        "bytes": each.bytes,
        "highest_epoch": each.highest_epoch,
        "deleting": None if each.deleting is None else each.deleting.name,
        "digest": each.digest,
    }


def _print(found: Examination) -> None:
    print_table(
        ["check", "", "detail"],
        [(each.name, "ok" if each.ok else "WRONG", each.detail) for each in found.checks],
    )
    topics: dict[str, list[PartitionSummary]] = {}
    for each in found.partitions:
        topics.setdefault(each.partition.topic, []).append(each)
    if topics:
        print_table(
            ["topic", "partitions", "finished", "not finished", "being deleted", "bytes"],
            [_topic_row(topic, partitions) for topic, partitions in sorted(topics.items())],
        )
    for why, count in sorted(passed_over(found.reads).items()):
        console.print(f"{count} records change nothing by Kafka's own rules: {why}")
    wrong = sum(not check.ok for check in found.checks)
    console.print(
        f"{wrong} of {len(found.checks)} checks stand in the way of a move"
        if wrong
        else "nothing stands in the way of a move"
    )


def _topic_row(topic: str, partitions: list[PartitionSummary]) -> tuple[str, ...]:
    def count(state: SegmentState) -> str:
        return str(sum(each.segments.get(state, 0) for each in partitions))

    return (
        topic,
        str(len(partitions)),
        count(SegmentState.COPY_SEGMENT_FINISHED),
        count(SegmentState.COPY_SEGMENT_STARTED),
        count(SegmentState.DELETE_SEGMENT_STARTED),
        human_bytes(sum(each.bytes for each in partitions)),
    )
