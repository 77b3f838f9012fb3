"""`strandline log`: how much a node writes into its log."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlm.control.log_levels import LogArea, LogLevel
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, print_json, print_table

PATH = "/v1/node/log"

log_app = typer.Typer(
    help="How much of each area a node writes into its log: show, set.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@log_app.command("show")
def log_show_command(
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """The levels of the node that is asked, and of its workers.

    Example: `strandline log show`
    """
    with NodeClient(url, token_file) as client:
        _show(client.get(PATH), as_json=json)
    return ExitCode.OK


@log_app.command("set")
def log_set_command(
    area: Annotated[LogArea, typer.Argument(help="Which part of the program.")],
    level: Annotated[LogLevel, typer.Argument(help="The least that it writes.")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Change how much one area writes, on the node that is asked and its workers, at once.

    A restart brings the levels of the settings back: write there what is to last.

    Example: `strandline log set stores debug`
    """
    with NodeClient(url, token_file) as client:
        answer = client.change("PUT", f"{PATH}/{area}", {"level": level})
    _show(answer, as_json=json)
    if not json:
        console.print("until the node restarts: its settings have what holds then")
    return ExitCode.OK


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print_table(["area", "level"], [(area, answer["levels"][area]) for area in LogArea])
