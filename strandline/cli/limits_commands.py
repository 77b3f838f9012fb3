"""`strandline limits`: the rate limits of a node towards the stores."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import console, print_table
from strandline.cli.quantities import UNLIMITED, parse_size_bytes, size_text

PATH = "/v1/node/limits"
UNTIL_RESTART = "this holds until the node restarts; then its settings apply again"
FIELDS = ("copy_bytes_per_s", "read_bytes_per_s")

limits_app = command_group(
    "A node's rate limits for copying to the stores and reading from them: show, set."
)


@limits_app.command("show")
@asks_node
def limits_show_command(client: NodeClient) -> Answer:
    """Show the limits of the node that is asked, and those of single topics.

    Example: `strandline limits show`
    """
    limits = client.get(PATH)
    return Answer(limits, lambda: _print(limits))


@limits_app.command("set")
@asks_node
def limits_set_command(
    client: NodeClient,
    copy: Annotated[
        str | None,
        typer.Option(help="Bytes a second to the stores: `50MiB`, or `unlimited`."),
    ] = None,
    read: Annotated[
        str | None, typer.Option(help="Bytes a second from the stores: `50MiB`, or `unlimited`.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="The limit of this topic; default: of the whole node.")
    ] = None,
) -> Answer:
    """Change the named limits of the node that is asked, at once; the others stay.

    A restart brings back the limits of the settings: change them there to make it last.

    Example: `strandline limits set --copy 50MiB`, `strandline limits set --read 10MiB --topic logs`
    """
    changes = {
        field: parse_size_bytes(text, field=option)
        for field, text, option in zip(FIELDS, (copy, read), ("--copy", "--read"), strict=True)
        if text is not None
    }
    if not changes:
        raise InvalidRequest("nothing to change: give --copy or --read")
    limits = client.get(PATH)
    body = {name: limits[name] for name in (*FIELDS, "topics")}
    body["replaces_revision"] = limits["revision"]
    if topic is None:
        body |= changes
    else:
        rates = dict.fromkeys(FIELDS) | body["topics"].get(topic, {}) | changes
        body["topics"][topic] = rates
        if not any(rates.values()):
            del body["topics"][topic]
    limits = client.change_node("PUT", PATH, body)

    def show() -> None:
        _print(limits)
        console.print(UNTIL_RESTART)

    return Answer(limits, show)


def _print(limits: dict[str, Any]) -> None:
    rows = [(f"node {limits['node_id']}", *_texts(limits))]
    rows += [(f"topic {name}", *_texts(rates)) for name, rates in sorted(limits["topics"].items())]
    print_table(["limit of", "copying", "reading"], rows)


def _texts(rates: dict[str, int | None]) -> list[str]:
    texts = [size_text(rates[field]) for field in FIELDS]
    return [text if text == UNLIMITED else f"{text}/s" for text in texts]
