"""`strandline pipeline rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.running import Job, runs_job_on_bucket


@runs_job_on_bucket
def rebuild_command(
    job: Job,
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
    with job.context("rebuild") as context:
        done = run(context, options)
    return job.finish(done)
