"""`strandline stores`: the named stores, what is in them, and whether it is all there."""

from __future__ import annotations

from typing import Any

import typer

from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import human_bytes, print_json, print_table
from strandline.cli.stores_verify_command import stores_verify_command

stores_app = typer.Typer(
    help="The named stores: list, verify.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

stores_app.command("verify")(stores_verify_command)


@stores_app.command("list")
def stores_list_command(
    url: UrlOption = DEFAULT_URL, token_file: TokenFileOption = None, json: JsonOption = False
) -> int:
    """The stores of the node's settings, where they are, and how many segments are in each.

    A store without segments may be taken out of the settings, if it is not the default one.

    Example: `strandline stores list`
    """
    with NodeClient(url, token_file) as client:
        stores: list[dict[str, Any]] = client.get("/v1/stores")["stores"]
    if json:
        print_json(stores)
        return ExitCode.OK
    print_table(
        ["store", "segments", "size", "new copies", "trouble", "where"],
        [
            (
                each["name"],
                each["segments"],
                human_bytes(each["size_bytes"]),
                each["default"],
                each["problem"] if each["configured"] else "not in this node's settings",
                _where(each["location"]),
            )
            for each in stores
        ],
    )
    return ExitCode.OK


def _where(location: dict[str, Any] | None) -> str | None:
    if location is None:
        return None
    if location["kind"] == "s3":
        at = f" at {location['endpoint_url']}" if location["endpoint_url"] else ""
        return f"s3://{location['bucket']}/{location['prefix']}{at}"
    return f"file://{location['path']}/{location['prefix']}"
