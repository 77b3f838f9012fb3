"""Settings of the cluster over HTTP: their scopes as options, and changes that name what they
replace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest
from strandline.cli.client import NodeClient
from strandline.cli.output import human_time
from strandline.cli.query_answers import path_part

PATH = "/v1/settings"
NODE_ID_MAX = 2**31 - 1
Scope = dict[str, str]
CLUSTER: Scope = {"kind": "cluster", "name": ""}

WhyOption = Annotated[str, typer.Option(help="Reason, shown to everyone who reads the state.")]
ClusterOption = Annotated[
    bool, typer.Option("--cluster", help="For all nodes, kept in the metadata log (role admin).")
]
NodeOption = Annotated[
    int | None,
    typer.Option(
        min=0, max=NODE_ID_MAX, help="For the node with this id, kept in the metadata log."
    ),
]


def of_node(node_id: int) -> Scope:
    return {"kind": "node", "name": str(node_id)}


def of_topic(name: str) -> Scope:
    return {"kind": "topic", "name": name}


def chosen_scope(*, cluster: bool, node: int | None) -> Scope | None:
    """The scope that the options name; None: neither is given."""
    if cluster and node is not None:
        raise InvalidRequest(
            "these exclude each other: give one of them", field="--cluster, --node"
        )
    if cluster:
        return CLUSTER
    return None if node is None else of_node(node)


def standing_settings(client: NodeClient, setting: str) -> list[dict[str, Any]]:
    """The settings of this name in force, in any scope."""
    rows = client.get(PATH)["settings"]
    return [each for each in rows if each["setting"] == setting]


def change_setting(
    client: NodeClient, setting: str, scope: Scope, value: bool | int | None, why: str = ""
) -> Any:
    """Set it for the scope; None removes it there. Conflict: it was changed meanwhile."""
    standing = [each for each in standing_settings(client, setting) if each["scope"] == scope]
    body = {
        "scope": scope,
        "value": value,
        "why": why,
        "replaces_offset": standing[0]["offset"] if standing else None,
    }
    return client.change("PUT", f"{PATH}/{path_part(setting)}", body)


def scope_text(scope: Scope) -> str:
    """The scope as written in sentences."""
    return "the cluster" if scope["kind"] == "cluster" else f"{scope['kind']} {scope['name']}"


def set_text(row: dict[str, Any]) -> str:
    """The setting's scope, with who set it, when and why."""
    why = f": {row['why']}" if row["why"] else ""
    return f"set for {scope_text(row['scope'])} by {row['who']} at {human_time(row['set_ms'])}{why}"


def rows_of(settings: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Rows of a table: setting, scope, value, who, when, why."""
    return [
        (
            each["setting"], scope_text(each["scope"]), each["value"], each["who"],
            human_time(each["set_ms"]), each["why"] or None,
        )
        for each in settings
    ]  # fmt: skip
