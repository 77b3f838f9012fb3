"""`strandline limits`: the rate limits of a node's traffic to and from the stores."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest
from rlm.cluster_settings.known_settings import Setting
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.known_topics import AheadOption, check_topic_known
from strandline.cli.output import console, print_table
from strandline.cli.quantities import UNLIMITED, parse_size_bytes, size_text
from strandline.cli.setting_changes import (
    ClusterOption,
    NodeOption,
    Scope,
    WhyOption,
    change_setting,
    chosen_scope,
    of_topic,
    rows_of,
    standing_settings,
)
from strandline.cli.settings_commands import COLUMNS

PATH = "/v1/node/limits"
UNTIL_RESTART = "in force until the node restarts; then its settings apply again"
FIELDS = ("copy_bytes_per_s", "read_bytes_per_s")
SETTINGS = dict(zip(FIELDS, (Setting.COPY_RATE, Setting.READ_RATE), strict=True))

limits_app = command_group(
    "A node's rate limits for copying to the stores and reading from them: show, set."
)


@limits_app.command("show")
@asks_node
def limits_show_command(client: NodeClient) -> Answer:
    """Show the limits of the queried node, and those of single topics.

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
        typer.Option(help="Bytes per second to the stores: `50MiB`, or `unlimited`."),
    ] = None,
    read: Annotated[
        str | None, typer.Option(help="Bytes per second from the stores: `50MiB`, or `unlimited`.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option(help="The limit of this topic; default: of the whole node.")
    ] = None,
    cluster: ClusterOption = False,
    node: NodeOption = None,
    why: WhyOption = "",
    ahead: AheadOption = False,
) -> Answer:
    """Change the given limits at once; the remaining ones stay.

    With `--cluster` (every node gets this limit) or `--node` they are set in the metadata log, with
    `--cluster --topic` for the topic on each node; `strandline settings remove` removes them.
    Without these options they apply to the queried node, until a restart restores those of its
    file.

    Example: `strandline limits set --copy 50MiB`, `strandline limits set --read 10MiB --topic logs`
    """
    scope = chosen_scope(cluster=cluster, node=node)
    if node is not None and topic is not None:
        raise InvalidRequest("a topic's limit is for all nodes: give --cluster", field="--node")
    changes = {
        field: parse_size_bytes(text, field=option)
        for field, text, option in zip(FIELDS, (copy, read), ("--copy", "--read"), strict=True)
        if text is not None
    }
    if not changes:
        raise InvalidRequest("nothing to change: give --copy or --read")
    if topic is not None and not ahead and any(rate is not None for rate in changes.values()):
        check_topic_known(client, topic, to_change=True)
    if scope is not None:
        return _set_in_log(client, scope if topic is None else of_topic(topic), changes, why)
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


def _set_in_log(
    client: NodeClient, scope: Scope, changes: dict[str, int | None], why: str
) -> Answer:
    for field, rate in changes.items():
        change_setting(client, SETTINGS[field], scope, rate or 0, why)
    known = [SETTINGS[field] for field in changes]
    rows = [row for setting in known for row in standing_settings(client, setting)]
    return Answer(rows, lambda: print_table(COLUMNS, rows_of(rows)))


def _print(limits: dict[str, Any]) -> None:
    rows = [(f"node {limits['node_id']}", *_texts(limits))]
    rows += [(f"topic {name}", *_texts(rates)) for name, rates in sorted(limits["topics"].items())]
    print_table(["limit of", "copying", "reading"], rows)


def _texts(rates: dict[str, int | None]) -> list[str]:
    texts = [size_text(rates[field]) for field in FIELDS]
    return [text if text == UNLIMITED else f"{text}/s" for text in texts]
