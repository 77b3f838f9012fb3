"""`strandline log`: the log levels of a node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlm.control.log_levels import LogArea, LogLevel
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.limits_commands import UNTIL_RESTART
from strandline.cli.output import console, print_table

PATH = "/v1/node/log"

log_app = command_group("A node's log levels, by area: show, set.")


@log_app.command("show")
@asks_node
def log_show_command(client: NodeClient) -> Answer:
    """Show the log levels of the queried node and its workers.

    Example: `strandline log show`
    """
    levels = client.get(PATH)
    return Answer(levels, lambda: _print(levels))


@log_app.command("set")
@asks_node
def log_set_command(
    client: NodeClient,
    area: Annotated[LogArea, typer.Argument(help="Part of the program.")],
    level: Annotated[LogLevel, typer.Argument(help="Least severe level that is logged.")],
) -> Answer:
    """Change the log level of one area, on the queried node and its workers, at once.

    A restart restores the levels of the settings: change it there to make it permanent.

    Example: `strandline log set stores debug`
    """
    answer = client.change_node("PUT", f"{PATH}/{area}", {"level": level})

    def show() -> None:
        _print(answer)
        console.print(UNTIL_RESTART)

    return Answer(answer, show)


def _print(answer: dict[str, Any]) -> None:
    print_table(["area", "level"], [(area, answer["levels"][area]) for area in LogArea])
