"""The `strandline` command: its sub-commands, and how errors become messages and exit codes.

A sub-command's module is imported when it is run: `strandline --help` and `strandline status` must
not wait for the S3 client, RocksDB and the Kafka protocol. So the table below repeats the first
line of each command's help (a test compares them).
"""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kafka_formats.errors import StrandlineError
from strandline.cli.exit_codes import ExitCode, exit_code_for

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
        "Run the node until SIGTERM or SIGINT. SIGHUP reads the tokens file again.",
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
        "query_commands:partitions_command",
        "Partitions: how far they are copied, how much waits, and why.",
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
    "stores": ("stores_command:stores_app", "The named stores: list."),
    "audit": (
        "audit_command:audit_command",
        "What the node deleted, marked and moved, and why; newest first.",
    ),
    "retention": (
        "retention_command:retention_app",
        "What retention takes from a partition's tier: plan, accept.",
    ),
    "limits": (
        "limits_commands:limits_app",
        "How fast a node copies to the stores and reads from them: show, set.",
    ),
    "quorum": (
        "quorum_commands:quorum_app",
        "The metadata quorum: describe it, change its voters, move its leadership.",
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
        "policy",
        "pause",
        "resume",
        "collect",
        "stores",
        "audit",
        "retention",
        "limits",
        "quorum",
    ),
    "Without a node": ("copy", "demo"),
}
"""How `strandline --help` groups them."""


def load_command(name: str) -> Any:
    """The real command behind a name. Imports its module; the type is private to Typer."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"strandline.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    alone.command(name)(found)
    return typer.main.get_command(alone)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"strandline {version('strandline')}")
        raise typer.Exit


def _print_error(message: str) -> None:
    from strandline.cli.output import print_error  # Rich is slow to import, errors are few

    print_error(message)


class _Commands(TyperGroup):
    """Commands return their exit code; errors of ours become one line and the kind's exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is to be run takes the place of the table's line about it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest

    def invoke(self, ctx: Any) -> None:
        try:
            code = super().invoke(ctx)
        except StrandlineError as error:
            _print_error(str(error))
            code = exit_code_for(error)
        except KeyboardInterrupt:
            _print_error("interrupted")
            code = ExitCode.INTERRUPTED
        raise typer.Exit(int(code or ExitCode.OK))


app = typer.Typer(
    cls=_Commands,
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


def _only_a_line_of_help() -> None:
    raise AssertionError("resolve_command puts the real command in its place")


for _panel, _names in PANELS.items():
    for _name in _names:
        app.command(_name, help=COMMANDS[_name][1], rich_help_panel=_panel)(_only_a_line_of_help)


def main() -> None:
    """The entry point of the `strandline` script."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `strandline records ... | head` just ends
    app()
