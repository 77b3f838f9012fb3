"""`strandline reconcile`: compares the metadata of a restarted cluster with its stores, before
segments are deleted again.
"""

from __future__ import annotations

from typing import Annotated

import typer

from rlm.reconcile.reconciliation import MissingSegment
from strandline.cli.config_option import ConfigOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import print_json, print_table, print_text
from strandline.node.reconciling import ReconcileReport, run_reconcile
from strandline.settings.loading import load_settings

SHOWN_MAX = 50


def reconcile_command(
    config: ConfigOption = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Record the missing segments, which allows deletions again."),
    ] = False,
    accept_missing: Annotated[
        int | None,
        typer.Option(help="Exact number of missing segments that you give up."),
    ] = None,
    take_over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE",
            help="Take over at once, also without --apply, a store that was not in the settings "
            "when this cluster began: it still belongs to the lost cluster, whose nodes are gone.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> int:
    """Compare the metadata with a full listing of the stores; stop the node first.

    Example: `strandline reconcile --config strandline.toml --apply`
    """
    settings = load_settings(config).settings
    report = run_reconcile(
        settings, record=apply, accept_missing=accept_missing, take_over=take_over or ()
    )
    if json:
        print_json(_document(report))
    else:
        _print(report)
    return ExitCode.OK


def _document(report: ReconcileReport) -> dict[str, object]:
    found = report.comparison
    return {
        "restarted_at": None if report.restart is None else report.restart.offset,
        "reconciled": report.restart is None or report.restart.is_reconciled,
        "whole": found.whole,
        "missing": _listed(found.missing),
        "damaged": _listed(found.damaged),
        "unknown": found.unknown_count,
        "unfinished": found.unfinished,
        "uncompared": found.uncompared,
        "unlisted": found.unlisted,
        "other_objects": found.other_objects,
    }


def _listed(segments: list[MissingSegment]) -> list[dict[str, object]]:
    return [
        {
            "segment_id": str(each.row.segment_id.id),
            "topic": each.row.segment_id.partition.topic,
            "partition": each.row.segment_id.partition.partition,
            "start_offset": each.row.start_offset,
            "end_offset": each.row.end_offset,
            "why": each.why,
        }
        for each in segments
    ]


def _print(report: ReconcileReport) -> None:
    found = report.comparison
    print_table(
        ["finished segments", "count"],
        [
            ("whole in the store", found.whole),
            ("missing", len(found.missing)),
            ("damaged, but with their records", len(found.damaged)),
            ("of a different RemoteStorageManager, not compared", found.uncompared),
            *(
                (f"in the store {store}, which is not in the settings, not compared", rows)
                for store, rows in sorted(found.unlisted.items())
            ),
            ("in the store, being copied or deleted", found.unfinished),
            ("in the store, unknown", found.unknown_count),
        ],
    )
    _print_segments("missing", found.missing)
    _print_segments("damaged", found.damaged)
    if found.damaged:
        print_text(
            "damaged segments keep their rows and objects: `strandline repair` restores the "
            "objects that they lack; after a restart from a snapshot, record this result first"
        )
    print_text(_conclusion(report))


def _print_segments(name: str, segments: list[MissingSegment]) -> None:
    if segments:
        print_table(
            [name, "offsets", "segment", "why"],
            [
                (
                    f"{each.row.segment_id.partition.topic}-{each.row.segment_id.partition.partition}",
                    f"{each.row.start_offset}-{each.row.end_offset}",
                    str(each.row.segment_id.id),
                    each.why,
                )
                for each in segments[:SHOWN_MAX]
            ],
        )


def _conclusion(report: ReconcileReport) -> str:
    if report.restart is None:
        return "the metadata was not restarted from a snapshot, so there is nothing to record"
    if report.recorded:
        return "the result is recorded; deletes are allowed again"
    if report.restart.is_reconciled:
        return "the restart was reconciled before; deletes are allowed"
    accept = f" --accept-missing {len(report.comparison.missing)}"
    return (
        "no segment is deleted until this result is recorded: run the command again with --apply"
        f"{accept if report.comparison.missing else ''}. Unknown segments are adopted at "
        "their partition's first claim, if they are whole and in its lineage"
    )
