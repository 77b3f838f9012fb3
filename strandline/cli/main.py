"""The `strandline` command and its sub-commands."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from rlm.control.process_end import end_process
from strandline.cli.lazy_commands import add_lines_of_help, exit_status, lazy_commands

COMMANDS: dict[str, tuple[str, str]] = {
    "format": (
        "node_commands:format_command",
        "Make the node's data directory, once, as mkfs makes a file system.",
    ),
    "random-uuid": (
        "node_commands:random_uuid_command",
        "Print a new Uuid in Kafka's form, for cluster and directory ids.",
    ),
    "doctor": (
        "doctor_command:doctor_command",
        "Check directories, broker, stores and permissions; say what to do about each finding.",
    ),
    "node": (
        "run_command:node_command",
        "Run the node until SIGTERM or SIGINT. SIGHUP reads tokens and keys again.",
    ),
    "config": (
        "node_commands:config_command",
        "Print the effective settings and where each value came from.",
    ),
    "support-bundle": (
        "support_command:support_bundle_command",
        "Gather what a report of trouble needs into one archive, without secrets.",
    ),
    "reconcile": (
        "reconcile_command:reconcile_command",
        "Compare the metadata with a full listing of the stores; the node must not run.",
    ),
    "copy": (
        "copy_command:copy_command",
        "Copy every sealed, stable segment of log directories to a store, once.",
    ),
    "demo": (
        "demo_command:demo_command",
        "Copy real Kafka segments to an embedded S3 store, on three nodes whose leader is killed.",
    ),
    "status": (
        "query_commands:status_command",
        "Who the node is, what the tier holds, what this node could not take.",
    ),
    "topics": (
        "topic_commands:topics_app",
        "Topics: list, show, delete their tiered data, deletion, undo-delete.",
    ),
    "partitions": (
        "partition_commands:partitions_app",
        "Partitions: list (the default), skip, allow-gaps.",
    ),
    "segments": ("segment_commands:segments_app", "Segments of a partition: list, show, history."),
    "offsets": (
        "query_commands:offsets_command",
        "ListOffsets: earliest, latest, local, tiered, pending, or by time.",
    ),
    "leader-transition": (
        "query_commands:leader_transition_command",
        "Where a new leader goes on copying. Claims nothing.",
    ),
    "follower-fetch": (
        "query_commands:follower_fetch_command",
        "What a follower needs to rebuild from the tier.",
    ),
    "records": (
        "query_commands:records_command",
        "Read records back from the tier: one JSON object a line, or the stored batches.",
    ),
    "claims": ("claims_commands:claims_app", "Who writes a partition: show, reset."),
    "mode": ("mode_commands:mode_app", "Who copies and expires a partition: set."),
    "policy": (
        "policy_commands:policy_app",
        "A topic's retention in the tier and its kill switches: show, set.",
    ),
    "pause": (
        "pause_commands:pause_command",
        "Pause copying or deleting: of the node that is asked, or of one topic everywhere.",
    ),
    "resume": ("pause_commands:resume_command", "Resume what `strandline pause` paused."),
    "collect": (
        "collect_command:collect_command",
        "List the stores, ask the metadata about each object, and remove what it deleted.",
    ),
    "stores": ("stores_command:stores_app", "The named stores: list, verify."),
    "audit": (
        "audit_command:audit_command",
        "What the node deleted, marked and moved, and why; newest first.",
    ),
    "retention": (
        "retention_command:retention_app",
        "What retention takes from a partition's tier: plan, accept, delete-records.",
    ),
    "repair": (
        "repair_command:repair_command",
        "Copy damaged segments anew, from where a whole copy is; a dry run without `--yes`.",
    ),
    "limits": (
        "limits_commands:limits_app",
        "How fast a node copies to the stores and reads from them: show, set.",
    ),
    "log": (
        "log_commands:log_app",
        "How much of each area a node writes into its log: show, set.",
    ),
    "quorum": (
        "quorum_commands:quorum_app",
        "The metadata quorum: describe it, change its voters, move its leadership.",
    ),
    "pipeline": (
        "pipeline_command:pipeline_app",
        "Jobs on Spark over the tiered history; `strandline pipeline` lists them.",
    ),
}
"""Name -> (module in this package and what to take from it, first line of its help)."""

PANELS = {
    "On the node itself": (
        "format",
        "random-uuid",
        "doctor",
        "node",
        "config",
        "reconcile",
        "support-bundle",
    ),
    "Asked of a running node": (
        "status",
        "topics",
        "partitions",
        "segments",
        "offsets",
        "leader-transition",
        "follower-fetch",
        "records",
        "claims",
        "mode",
        "policy",
        "pause",
        "resume",
        "collect",
        "repair",
        "stores",
        "audit",
        "retention",
        "limits",
        "log",
        "quorum",
    ),
    "Without a node": ("copy", "demo"),
    "On Spark": ("pipeline",),
}
"""How `strandline --help` groups them."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"strandline {version('strandline')}")
        raise typer.Exit


app = typer.Typer(
    cls=lazy_commands("strandline.cli", COMMANDS),
    name="strandline",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _strandline(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A remote log manager for Apache Kafka tiered storage.

    Each command's own `--help` has an example; docs/OPERATIONS.md lists the exit codes.
    """


for _panel, _names in PANELS.items():
    add_lines_of_help(app, {name: COMMANDS[name] for name in _names}, panel=_panel)


def main() -> NoReturn:
    """The entry point of the `strandline` script."""
    end_process(exit_status(app))
