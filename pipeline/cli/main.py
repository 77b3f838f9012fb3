"""`python -m pipeline NAME`: the jobs by name. `strandline pipeline NAME` starts it."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from rlm.control.process_end import flush_output
from strandline.cli.lazy_commands import add_lines_of_help, exit_status, lazy_commands

COMMANDS: dict[str, tuple[str, str]] = {
    "export": (
        "export_command:export_command",
        "Append tiered records to a table: Parquet, Delta or Iceberg, every offset once.",
    ),
    "rebuild": (
        "rebuild_command:rebuild_command",
        "Make a metadata snapshot from the bucket's manifests, when all others are lost.",
    ),
    "reconcile": (
        "reconcile_command:reconcile_command",
        "Compare every object in the bucket with the metadata. Deletes nothing itself.",
    ),
    "restore": (
        "restore_command:restore_command",
        "Restore a topic into Kafka: a cluster, or a stopped broker's log directories.",
    ),
    "scrub": (
        "scrub_command:scrub_command",
        "Read every tiered byte and check it: checksums, batches, offsets, indexes, metadata.",
    ),
    "usage": (
        "usage_command:usage_command",
        "Bytes, objects and requests of each topic by age, and what a month costs.",
    ),
}
"""Name -> (module:function in this package, first line of its help)."""

app = typer.Typer(
    cls=lazy_commands("pipeline.cli", COMMANDS),
    name="strandline pipeline",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _pipeline() -> None:
    """Jobs on Spark over the tiered history. They never touch a broker.

    Each job's own `--help` has an example; docs/PIPELINE.md describes the options of all jobs.
    """


add_lines_of_help(app, COMMANDS, panel="Jobs")


def main() -> NoReturn:
    """The entry point of the jobs' process."""
    sys.exit(flush_output(exit_status(app, prog_name="strandline pipeline")))
