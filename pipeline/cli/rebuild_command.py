"""`strandline pipeline rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import (
    ConfOption,
    JsonOption,
    MasterOption,
    ReportOption,
    StoreOption,
    TierOption,
    tier_options,
    typed_key_values,
)
from pipeline.cli.running import finish, job_context


def rebuild_command(
    output: Annotated[
        Path, typer.Option("--output", help="Folder that the snapshot is written to.")
    ] = Path(),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what a snapshot would hold.")
    ] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="Id of a segment to leave out; may be repeated."),
    ] = None,
    accept_doubt: Annotated[
        bool,
        typer.Option(
            "--accept-doubt",
            help="Take segments in doubt, too. Look at them first: the log may never have kept "
            "their records.",
        ),
    ] = False,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="All partitions start READ_ONLY: no node copies to them."),
    ] = False,
    store: StoreOption = None,
    option: TierOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    report: ReportOption = None,
    json: JsonOption = False,
) -> int:
    """Make a metadata snapshot from the bucket's manifests, when all others are lost.

    The bucket stays as it is. Give each store the name that the node's settings have for it:
    `--store` is `main`, others are `-o strandline.store.NAME=...`.

    Example: `strandline pipeline rebuild --store s3://bucket/prefix --output .`
    """
    from pipeline.jobs.rebuild import RebuildOptions, run
    from rlmm.partition_state import Mode

    options = RebuildOptions(
        None if dry_run else output,
        frozenset(leave_out or ()),
        accept_doubt,
        Mode.READ_ONLY if read_only else None,
    )
    with job_context(
        "rebuild",
        options=tier_options(option, store, None, None),
        master=master,
        conf=typed_key_values(conf, option="--conf"),
    ) as context:
        done = run(context, options)
    return finish(done, report_file=report, json_wanted=json)
