"""`strandline settings`: the settings of the cluster in the metadata log."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest, NotFound
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import print_table, print_text
from strandline.cli.setting_changes import (
    PATH,
    ClusterOption,
    NodeOption,
    WhyOption,
    change_setting,
    chosen_scope,
    of_topic,
    rows_of,
    scope_text,
    set_text,
    standing_settings,
)

COLUMNS = ["setting", "scope", "value", "by", "since", "why"]
settings_app = command_group(
    "The settings of the cluster, of nodes and of topics in the metadata log: list, show, remove."
)


@settings_app.command("list")
@asks_node
def settings_list_command(client: NodeClient) -> Answer:
    """List the settings in force in the metadata log, with author and reason.

    Example: `strandline settings list`
    """
    found = client.get(PATH)
    return Answer(found, lambda: print_table(COLUMNS, rows_of(found["settings"])))


@settings_app.command("show")
@asks_node
def settings_show_command(
    client: NodeClient,
    topic: Annotated[str | None, typer.Option(help="The settings in force for this topic.")] = None,
) -> Answer:
    """Show the settings in force on the queried node, and the source of each.

    Example: `strandline settings show --topic orders`
    """
    found = client.get("/v1/node/settings", topic=topic)
    return Answer(found, lambda: print_table(["setting", "value", "from"], _in_force(found)))


@settings_app.command("remove")
@asks_node
def settings_remove_command(
    client: NodeClient,
    setting: Annotated[str, typer.Argument(help="Its name, as `strandline settings list` has it.")],
    cluster: ClusterOption = False,
    node: NodeOption = None,
    topic: Annotated[
        str | None, typer.Option(help="The setting of this topic, or of this pattern.")
    ] = None,
    why: WhyOption = "",
) -> Answer:
    """Remove a setting: the next wider one applies again, in the end each node's own file.

    Example: `strandline settings remove topics.tiered --topic orders`
    """
    scope = chosen_scope(cluster=cluster, node=node)
    if (scope is None) == (topic is None):
        raise InvalidRequest("give one of --cluster, --node and --topic")
    scope = of_topic(topic) if topic is not None else scope
    assert scope is not None
    if all(each["scope"] != scope for each in standing_settings(client, setting)):
        raise NotFound(f"{setting} is not set for {scope_text(scope)}: nothing was changed")
    answer = change_setting(client, setting, scope, None, why)
    return Answer(answer, lambda: print_text(f"{setting} is no longer set for {scope_text(scope)}"))


def _in_force(found: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (
            each["setting"],
            each["value"],
            "the node's own file" if each["set_by"] is None else set_text(each["set_by"]),
        )
        for each in found["in_force"]
    ]
