"""`strandline stores`: list the named stores, and verify one."""

from __future__ import annotations

from typing import Any

from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import human_bytes, print_table
from strandline.cli.stores_verify_command import stores_verify_command

stores_app = command_group("The named stores: list, verify.")

stores_app.command("verify")(stores_verify_command)


@stores_app.command("list")
@asks_node
def stores_list_command(client: NodeClient) -> Answer:
    """List the stores of the node's settings, where they are, and how many segments each has.

    A store without segments can be removed from the settings unless it is the default one.

    Example: `strandline stores list`
    """
    stores: list[dict[str, Any]] = client.get("/v1/stores")["stores"]
    rows = [
        (
            each["name"],
            each["segments"],
            human_bytes(each["size_bytes"]),
            each["default"],
            each["problem"] if each["configured"] else "not in this node's settings",
            _where(each["location"]),
        )
        for each in stores
    ]
    columns = ["store", "segments", "size", "new copies", "trouble", "where"]
    return Answer(stores, lambda: print_table(columns, rows))


def _where(location: dict[str, Any] | None) -> str | None:
    if location is None:
        return None
    if location["kind"] == "s3":
        at = f" at {location['endpoint_url']}" if location["endpoint_url"] else ""
        return f"s3://{location['bucket']}/{location['prefix']}{at}"
    return f"file://{location['path']}/{location['prefix']}"
