"""`strandline limits`: how fast a node moves bytes to and from the stores."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, print_json, print_table
from strandline.cli.quantities import UNLIMITED, parse_size_bytes, size_text

PATH = "/v1/node/limits"
FIELDS = ("copy_bytes_per_s", "read_bytes_per_s")

limits_app = typer.Typer(
    help="How fast a node copies to the stores and reads from them: show, set.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@limits_app.command("show")
def limits_show_command(
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """The limits of the node that is asked, and of single topics within them.

    Example: `strandline limits show`
    """
    with NodeClient(url, token_file) as client:
        limits = client.get(PATH)
    if json:
        print_json(limits)
    else:
        _print(limits)
    return ExitCode.OK


@limits_app.command("set")
def limits_set_command(
    copy: Annotated[
        str | None,
        typer.Option(help="A second, to the stores: `50MiB`, or `unlimited`."),
    ] = None,
    read: Annotated[
        str | None, typer.Option(help="A second, from the stores: `50MiB`, or `unlimited`.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="Of this topic; default: of the node as a whole.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Change what is named, on the node that is asked, at once; the rest stays as it is.

    A restart brings the limits of the settings back: write there what is to last.

    Example: `strandline limits set --copy 50MiB`, `strandline limits set --read 10MiB --topic logs`
    """
    changes = {
        field: parse_size_bytes(text, field=option)
        for field, text, option in zip(FIELDS, (copy, read), ("--copy", "--read"), strict=True)
        if text is not None
    }
    if not changes:
        raise InvalidRequest("nothing to change: give --copy or --read")
    with NodeClient(url, token_file) as client:
        limits = client.get(PATH)
        body = {name: limits[name] for name in (*FIELDS, "topics")}
        if topic is None:
            body |= changes
        else:
            rates = dict.fromkeys(FIELDS) | body["topics"].get(topic, {}) | changes
            body["topics"][topic] = rates
            if not any(rates.values()):
                del body["topics"][topic]
        limits = client.change("PUT", PATH, body)
    if json:
        print_json(limits)
    else:
        _print(limits)
        console.print("until the node restarts: its settings have what holds then")
    return ExitCode.OK


def _print(limits: dict[str, Any]) -> None:
    rows = [(f"node {limits['node_id']}", *_texts(limits))]
    rows += [(f"topic {name}", *_texts(rates)) for name, rates in sorted(limits["topics"].items())]
    print_table(["of", "copying", "reading"], rows)


def _texts(rates: dict[str, int | None]) -> list[str]:
    texts = [size_text(rates[field]) for field in FIELDS]
    return [text if text == UNLIMITED else f"{text}/s" for text in texts]
