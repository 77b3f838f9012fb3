"""The `strandline` command: its sub-commands, and how errors become messages and exit codes."""

from __future__ import annotations

import signal
from typing import Any

import typer
from typer.core import TyperGroup

from kafka_formats.errors import StrandlineError
from strandline.cli import copy_command, demo_command, node_commands, query_commands
from strandline.cli.exit_codes import ExitCode, exit_code_for
from strandline.cli.output import print_error


class _Commands(TyperGroup):
    """Commands return their exit code; errors of ours become one line and the kind's exit code."""

    def invoke(self, ctx: Any) -> None:  # the context type is private to Typer
        try:
            code = super().invoke(ctx)
        except StrandlineError as error:
            print_error(str(error))
            code = exit_code_for(error)
        except KeyboardInterrupt:
            print_error("interrupted")
            code = ExitCode.INTERRUPTED
        raise typer.Exit(int(code or ExitCode.OK))


app = typer.Typer(
    cls=_Commands,
    name="strandline",
    help="A remote log manager for Apache Kafka tiered storage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

app.command("format")(node_commands.format_command)
app.command("node")(node_commands.node_command)
app.command("config")(node_commands.config_command)
app.command("doctor")(node_commands.doctor_command)
app.command("copy")(copy_command.copy_command)
app.command("demo")(demo_command.demo_command)
app.command("status")(query_commands.status_command)
app.command("topics")(query_commands.topics_command)
app.command("partitions")(query_commands.partitions_command)
app.add_typer(query_commands.segments_app, name="segments")
app.command("offsets")(query_commands.offsets_command)
app.command("leader-transition")(query_commands.leader_transition_command)
app.command("follower-fetch")(query_commands.follower_fetch_command)
app.command("records")(query_commands.records_command)


def main() -> None:
    """The entry point of the `strandline` script."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `strandline records ... | head` just ends
    app()
