"""`strandline mode`: sets whether a partition is copied and expired, or only read."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import print_effect
from strandline.cli.query_answers import (
    DoItOption,
    NewestIncarnationOption,
    PartitionArgument,
    TopicArgument,
    partition_path,
)


class ModeChoice(StrEnum):
    """The modes. `sidecar`: the node beside the leader copies and expires; `delegated`: the
    leader's broker does, through the plug-in; `read_only`, `paused`: no node and no broker does.
    """

    SIDECAR = "sidecar"
    DELEGATED = "delegated"
    READ_ONLY = "read_only"
    PAUSED = "paused"


mode_app = command_group("The mode of a partition, copied and expired or only read: set.")


@mode_app.callback()
def _mode() -> None:
    """Keep `set`, the only command, as a sub-command in Typer."""


@mode_app.command("set")
@asks_node
def mode_set_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    mode: Annotated[
        ModeChoice,
        typer.Argument(
            help="`sidecar`: the node beside the leader copies. `delegated`: the leader's broker "
            "does, through the plug-in. `read_only`, `paused`: no node and no broker does."
        ),
    ],
    yes: DoItOption = False,
    topic_id: NewestIncarnationOption = None,
) -> Answer:
    """Set whether a partition is copied and expired, on all nodes; it can be read in any mode.

    `strandline partitions` shows the mode. To stop copying for a while, use `strandline pause`.

    Example: `strandline mode set orders 0 read_only`, then `strandline mode set orders 0 read_only
    --yes`
    """
    path = f"{partition_path(topic, partition)}/mode"
    body: dict[str, object] = {"mode": mode.value, "dry_run": True}
    answer = client.change("PUT", path, body, topic_id=topic_id)
    if yes:
        seen = {"replaces_offset": answer["mode_offset"], "confirm": topic}
        answer = client.change("PUT", path, body | seen | {"dry_run": False}, topic_id=topic_id)
    return Answer(answer, lambda: print_effect(_fields(answer), done=yes))


def _fields(answer: dict[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {
        "partition": f"{answer['topic']}-{answer['partition']}",
        "mode": answer["mode"],
        "changed": answer["changed"],
        "effect": answer["text"],
    }
    claim = answer["next_claim"]
    if claim is not None:
        refused = claim["verdict"] not in ("accepted", "no_effect")
        cuts = "" if claim["cut_at"] is None else f", cuts the lineage at {claim['cut_at']}"
        fields["next claim"] = (
            f"{claim['verdict']}: {claim['text']}"
            if refused
            else (f"accepted{cuts}, log start {claim['log_start_offset']}")
        )
    return fields
