"""`strandline nodes`: list the nodes of the cluster, show one, remove one that is gone."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import human_time, print_fields, print_table, print_text

NODE_ID_MAX = 2**31 - 1
NodeArgument = Annotated[int, typer.Argument(min=0, max=NODE_ID_MAX, help="Node id.")]

nodes_app = command_group("The nodes of the cluster: list, show, remove.")


@nodes_app.command("list")
@asks_node
def list_command(client: NodeClient) -> Answer:
    """List the nodes of the cluster and their liveness.

    Example: `strandline nodes list`
    """
    found = client.get("/v1/nodes")
    return Answer(found, lambda: _print_list(found["nodes"]))


@nodes_app.command("show")
@asks_node
def show_command(client: NodeClient, node_id: NodeArgument) -> Answer:
    """Show one node: addresses, release, and since when it is live or fenced.

    Example: `strandline nodes show 3`
    """
    node = client.get(f"/v1/nodes/{node_id}")
    return Answer(node, lambda: _print(node))


@nodes_app.command("remove")
@asks_node
def remove_command(client: NodeClient, node_id: NodeArgument) -> Answer:
    """Remove a node that is gone for good from the list; its next start registers it again.

    Refused while it is live or a voter: stop it, and remove it from the quorum first.

    Example: `strandline nodes remove 3`
    """
    node = client.change("DELETE", f"/v1/nodes/{node_id}")
    return Answer(node, lambda: _print(node))


def _print_list(nodes: list[dict[str, Any]]) -> None:
    print_table(
        ["node", "liveness", "since", "role", "release", "http", "zone", "log dirs"],
        [
            (
                each["node_id"],
                _liveness(each),
                human_time(each["liveness_since_ms"]),
                each["quorum_role"],
                each["release"],
                each["http"],
                _zone(each),
                each["log_dirs"],
            )
            for each in nodes
        ],
    )
    silent = [str(each["node_id"]) for each in nodes if each["liveness"] == "fenced"]
    if silent:
        print_text(
            f"silent for too long: {', '.join(silent)}. Start them, or `strandline nodes remove` "
            "what is gone for good"
        )


def _print(node: dict[str, Any]) -> None:
    read = node["read"]
    print_fields(
        {
            "node": node["node_id"],
            "liveness": f"{_liveness(node)} since {human_time(node['liveness_since_ms'])}",
            "role": node["quorum_role"],
            "release": node["release"],
            "feature levels": node["feature_levels"],
            "http": node["http"],
            "quorum address": node["quorum"],
            "read listener": None if read is None else f"{read['host']}:{read['port']}",
            "zone": _zone(node),
            "log directories": node["log_dirs"],
            "directory": node["directory_id"],
            "boot counter": node["boot_counter"],
            "node epoch": node["node_epoch"],
            "registered": human_time(node["registered_ms"]),
        }
    )


def _liveness(node: dict[str, Any]) -> str:
    return f"{node['liveness']}, contested" if node["contested"] else str(node["liveness"])


def _zone(node: dict[str, Any]) -> str | None:
    return (node["read"] or {}).get("zone") or None
