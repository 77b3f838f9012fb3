"""The `strandline` command and its sub-commands."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from rlm.control.process_end import end_process
from strandline.cli.closed_at_start import open_what_is_closed
from strandline.cli.lazy_commands import add_lines_of_help, exit_status, lazy_commands

PANELS: dict[str, dict[str, tuple[str, str]]] = {
    "On the node itself": {
        "format": (
            "node_commands:format_command",
            "Make the node's data directory, once, as mkfs makes a file system.",
        ),
        "random-uuid": (
            "node_commands:random_uuid_command",
            "Print a new UUID in Kafka's form, for cluster and directory ids.",
        ),
        "doctor": (
            "doctor_command:doctor_command",
            "Check directories, broker, stores and permissions; say what to do about each finding.",
        ),
        "node": (
            "run_command:node_command",
            "Run the node until SIGTERM or SIGINT; SIGHUP reloads tokens and keys.",
        ),
        "config": (
            "config_command:config_command",
            "Print the effective settings and the source of each value.",
        ),
        "support-bundle": (
            "support_command:support_bundle_command",
            "Collect status, settings and logs for a bug report in one archive, without secrets.",
        ),
        "reconcile": (
            "reconcile_command:reconcile_command",
            "Compare the metadata with a full listing of the stores; stop the node first.",
        ),
        "migrate": (
            "migrate_commands:migrate_app",
            "The move from Kafka's own metadata topic: check, start, switch, back, finish, status.",
        ),
    },
    "Ask a running node": {
        "status": (
            "query_commands:status_command",
            "Show the node's identity, the totals of the tier, and the node's problems.",
        ),
        "lag": (
            "view_commands:lag_command",
            "Show how far copying is behind on all nodes, and the partitions that are worst.",
        ),
        "sizes": (
            "view_commands:sizes_command",
            "Show bytes in the tier and on the nodes' machines, by topic.",
        ),
        "running": (
            "view_commands:running_command",
            "Show copies under way and deletions to come, on all nodes.",
        ),
        "topics": (
            "topic_commands:topics_app",
            "Topics and their tiered data: list, show, enable, disable, delete, deletion, "
            "undo-delete.",
        ),
        "partitions": (
            "partition_commands:partitions_app",
            "Partitions: list (the default), skip, allow-gaps.",
        ),
        "segments": (
            "segment_commands:segments_app",
            "Segments of a partition: list, show, history.",
        ),
        "offsets": (
            "query_commands:offsets_command",
            "Look offsets up as Kafka's ListOffsets: earliest, latest, tiered, or by time.",
        ),
        "leader-transition": (
            "query_commands:leader_transition_command",
            "Show the offset at which a new leader would continue copying; changes nothing.",
        ),
        "follower-fetch": (
            "query_commands:follower_fetch_command",
            "Show the state that a follower needs to rebuild its log from the tier.",
        ),
        "records": (
            "query_commands:records_command",
            "Read records back from the tier: one JSON object a line, or the stored batches.",
        ),
        "claims": (
            "claims_commands:claims_app",
            "The claim of the node that writes a partition: show, reset.",
        ),
        "mode": (
            "mode_commands:mode_app",
            "The mode of a partition, copied and expired or only read: set.",
        ),
        "policy": (
            "policy_commands:policy_app",
            "A topic's retention in the tier and its kill switches: show, set.",
        ),
        "pause": (
            "pause_commands:pause_command",
            "Pause copying or deleting: of a node, of all nodes, or of one topic.",
        ),
        "resume": ("pause_commands:resume_command", "Resume what `strandline pause` paused."),
        "collect": (
            "collect_command:collect_command",
            "Find objects of deleted segments in the stores; delete them with `--apply`.",
        ),
        "repair": (
            "repair_command:repair_command",
            "Copy damaged segments again from a whole copy elsewhere; a dry run without `--yes`.",
        ),
        "stores": ("stores_command:stores_app", "The named stores: list, verify."),
        "audit": (
            "audit_command:audit_command",
            "Show deletions and moves with their reasons, newest first.",
        ),
        "retention": (
            "retention_command:retention_app",
            "Retention of a partition in the tier: plan, accept, delete-records.",
        ),
        "trash": (
            "trash_commands:trash_app",
            "The trash of expired and deleted segments: list, restore, release, empty.",
        ),
        "erase": (
            "erase_command:erase_command",
            "Delete a deleted topic's tiered data, or segments below an offset, for good, and "
            "report.",
        ),
        "limits": (
            "limits_commands:limits_app",
            "A node's rate limits for copying to the stores and reading from them: show, set.",
        ),
        "log": ("log_commands:log_app", "A node's log levels, by area: show, set."),
        "settings": (
            "settings_commands:settings_app",
            "The settings of the cluster, of nodes and of topics in the metadata log: list, show, "
            "remove.",
        ),
        "nodes": (
            "nodes_commands:nodes_app",
            "The nodes of the cluster: list, show, remove.",
        ),
        "quorum": (
            "quorum_commands:quorum_app",
            "The metadata quorum: describe it, change its voters, move its leadership.",
        ),
    },
    "Without a node": {
        "copy": (
            "copy_command:copy_command",
            "Copy every sealed, stable segment of log directories to a store, once.",
        ),
        "demo": (
            "demo_command:demo_command",
            "Copy real Kafka segments to an embedded S3 store, on three nodes whose leader is "
            "killed.",
        ),
    },
    "On Spark": {
        "pipeline": (
            "pipeline_command:pipeline_app",
            "Jobs on Spark over the tiered history; `strandline pipeline` lists them.",
        ),
    },
}
"""Panel of the help -> command -> (module:attribute in this package, first line of its help)."""
COMMANDS = {name: each for panel in PANELS.values() for name, each in panel.items()}


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


for _panel, _commands in PANELS.items():
    add_lines_of_help(app, _commands, panel=_panel)


def main() -> NoReturn:
    """The entry point of the `strandline` script."""
    open_what_is_closed()
    end_process(exit_status(app))
