"""The `strandline` command: its sub-commands, and how errors become messages and exit codes."""

from __future__ import annotations

import signal
import sys

import click
import typer

from kafka_formats.errors import StrandlineError
from strandline.cli import copy_command, demo_command, node_commands, query_commands
from strandline.cli.exit_codes import ExitCode, exit_code_for
from strandline.cli.output import print_error

app = typer.Typer(
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
    """Run, and turn every error of ours into one line and its exit code."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(app(standalone_mode=False) or ExitCode.OK)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        print_error("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except StrandlineError as error:
        print_error(str(error))
        sys.exit(exit_code_for(error))
