"""`strandline pipeline reconcile`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kafka_formats.errors import InvalidRequest
from pipeline.cli.running import Job, runs_job


@runs_job
def reconcile_command(
    job: Job,
    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot",
            help="Compare with this metadata snapshot instead of a node's metadata. Later changes "
            "show as foreign or missing.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", help="Write every object with its class to this new folder."),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="The table as CSV; Parquet without it.")
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Let the node's collector delete the orphans (role admin)."),
    ] = False,
    accept_objects: Annotated[
        int,
        typer.Option(min=0, help="Allow this many orphans, whatever share of all objects it is."),
    ] = 0,
) -> int:
    """Compare every object in the bucket with the metadata. Deletes nothing itself.

    Example: `strandline pipeline reconcile --url http://127.0.0.1:9480 --table verdicts`
    """
    from pipeline.catalogue.node_address import node_address
    from pipeline.jobs.reconcile import ReconcileOptions, check_options, run
    from pipeline.process import ambient

    if csv and table is None:
        raise InvalidRequest("has no effect without --table: give both", field="--csv")
    options = ReconcileOptions(
        node_address(job.tier, os.environ), snapshot, table, csv, apply, accept_objects,
        ambient.now_ms, ambient.wait,
    )  # fmt: skip
    check_options(options)
    with job.context("reconcile") as context:
        done = run(context, options)
    return job.finish(done)
