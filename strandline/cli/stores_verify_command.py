"""`strandline stores verify`: compare the segments of the metadata with the objects of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from kafka_formats.errors import InvalidRequest, NotFound
from rlm.stores.tier_store import TierStore
from rsm_backends.open_store import open_store
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import errors, print_fields, print_table, print_text
from strandline.cli.query_answers import partition_path, topic_path
from strandline.doctor.store_verification import SegmentVerdict, StoredSegment, verify_segments
from strandline.node.event_loop import node_runner
from strandline.node.surroundings import store_surroundings
from strandline.settings.loading import load_settings
from strandline.settings.store_configs import store_configs

SEGMENTS_AT_ONCE = 200
PROBLEMS_SHOWN_MAX = 1_000
PAGE_SEGMENTS = 1_000
FINISHED = "COPY_SEGMENT_FINISHED"


@dataclass(frozen=True, slots=True)
class WrongSegment:
    """A segment that is missing or damaged; offsets are inclusive."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    wrong: str


@dataclass(slots=True)
class VerifyReport:
    """The result of a comparison. `problems` are the first of `wrong`; `gone_meanwhile` were
    deleted while this ran; `unproven_objects` have the right length, but the store has no checksum
    of them; `not_ours` belong to a different RemoteStorageManager, whose store is unknown.
    """

    store: str
    deep: bool
    segments: int = 0
    whole: int = 0
    wrong: int = 0
    gone_meanwhile: int = 0
    unproven_objects: int = 0
    not_ours: int = 0
    problems: list[WrongSegment] = field(default_factory=list)


@asks_node
def stores_verify_command(
    client: NodeClient,
    name: Annotated[str, typer.Argument(help="Name of the store, as in the settings.")],
    config: ConfigOption = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every byte instead of trusting the store's checksums."),
    ] = False,
) -> Answer:
    """Compare every segment that the metadata has in a store with its objects there.

    The settings say where the store is: those of a node, or others that name the place it is to
    move to. Reads only. Exit code 8: something is missing or wrong.

    Example: `strandline stores verify main --config moved.toml --deep`
    """
    configs = store_configs(load_settings(config).settings)
    if name not in configs:
        raise InvalidRequest(
            f"the settings have no [stores.{name}]: they have {', '.join(sorted(configs))}",
            field="NAME",
        )
    report = VerifyReport(name, deep)
    with node_runner() as runner:
        store = runner.run(open_store(configs[name], **store_surroundings()))
        tier = TierStore(name, store, configs[name].prefix)
        try:
            _verify(client, runner, tier, report)
        finally:
            runner.run(store.close())
    code = ExitCode.INCOMPLETE if report.wrong else ExitCode.OK
    return Answer(asdict(report), lambda: _print(report), code)


def _verify(
    client: NodeClient, runner: asyncio.Runner, tier: TierStore, report: VerifyReport
) -> None:
    total = sum(
        each["segments"] for each in client.get("/v1/stores")["stores"] if each["name"] == tier.name
    )
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    segments = _segments(client, report)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"segments of {tier.name}", total=total)
        while batch := list(islice(segments, SEGMENTS_AT_ONCE)):
            for verdict in runner.run(verify_segments(tier, batch, deep=report.deep)):
                _add(client, report, verdict)
            bar.update(task, completed=report.segments)


def _segments(client: NodeClient, report: VerifyReport) -> Iterator[StoredSegment]:
    """Finished segments of the store, a page at a time."""
    for topic in client.pages("/v1/topics", "topics"):
        path = topic_path(topic["topic"])
        for each in client.pages(path, "partition_list"):
            if not each["remote_segments"]:
                continue
            rows = client.pages(
                f"{partition_path(topic['topic'], each['partition'])}/segments",
                "segments",
                topic_id=each["topic_id"],
                state=FINISHED,
                limit=PAGE_SEGMENTS,
            )
            for row in rows:
                if row["objects"] is None:
                    report.not_ours += 1
                elif row["objects"]["store"] == report.store:
                    yield StoredSegment.of_answer(row)


def _add(client: NodeClient, report: VerifyReport, verdict: SegmentVerdict) -> None:
    report.segments += 1
    segment = verdict.segment
    if not verdict.wrong:
        report.whole += 1
        report.unproven_objects += verdict.unproven
    elif not _is_finished(client, segment):
        report.gone_meanwhile += 1
    else:
        report.wrong += 1
        if len(report.problems) < PROBLEMS_SHOWN_MAX:
            tip = segment.segment_id.partition
            report.problems.append(
                WrongSegment(
                    tip.topic,
                    str(tip.topic_id),
                    tip.partition,
                    str(segment.segment_id.id),
                    segment.start_offset,
                    segment.end_offset,
                    verdict.wrong,
                )
            )


def _is_finished(client: NodeClient, segment: StoredSegment) -> bool:
    """True while the objects must exist; retention may have deleted the segment meanwhile."""
    tip = segment.segment_id.partition
    path = f"{partition_path(tip.topic, tip.partition)}/segments/{segment.segment_id.id}"
    try:
        row: dict[str, Any] = client.get(path, topic_id=str(tip.topic_id))
    except NotFound:
        return False
    return bool(row["state"] == FINISHED)


def _print(report: VerifyReport) -> None:
    if report.problems:
        print_table(
            ["partition", "offsets", "segment", "wrong"],
            [
                (
                    f"{each.topic}-{each.partition}",
                    f"{each.start_offset}-{each.end_offset}",
                    each.segment_id,
                    each.wrong,
                )
                for each in report.problems
            ],
        )
    print_fields(
        {
            "store": report.store,
            "segments": report.segments,
            "whole": report.whole,
            "missing or wrong": report.wrong,
            "deleted meanwhile": report.gone_meanwhile,
            "of another RemoteStorageManager": report.not_ours,
        }
    )
    if report.unproven_objects:
        print_text(
            f"of {report.unproven_objects} objects the store knows only the length: "
            "--deep reads and checks them"
        )
