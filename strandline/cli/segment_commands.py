"""`strandline segments`: list, show, history; asked of a running node over HTTP."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import human_bytes, human_time, print_table
from strandline.cli.query_answers import (
    PartitionArgument,
    TopicArgument,
    epochs_text,
    partition_path,
    path_part,
    print_answer,
    state_name,
)

SegmentArgument = Annotated[str, typer.Argument(help="Segment id, as `segments list` shows it.")]


class StateChoice(StrEnum):
    """The states as the table shows them; the interface has Kafka's long names."""

    COPY_STARTED = "copy-started"
    COPY_FINISHED = "copy-finished"
    DELETE_STARTED = "delete-started"
    DELETE_FINISHED = "delete-finished"


segments_app = command_group("Segments of a partition: list, show, history.")


@segments_app.command("list")
@asks_node
def segments_list_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    state: Annotated[StateChoice | None, typer.Option(help="Only segments in this state.")] = None,
) -> Answer:
    """List the segments of a partition, by start offset.

    Example: `strandline segments list orders 0`
    """
    path = f"{partition_path(topic, partition)}/segments"
    found = list(client.pages(path, "segments", state=_wire_state(state)))
    columns = ["segment id", "state", "from", "to", "epochs", "size", "newest record"]

    def show() -> None:
        print_table(
            columns,
            [
                (
                    s["segment_id"],
                    state_name(s["state"]),
                    s["start_offset"],
                    s["end_offset"],
                    epochs_text(s["leader_epochs"]),
                    human_bytes(s["size_bytes"]),
                    human_time(s["max_timestamp_ms"]),
                )
                for s in found
            ],
        )

    return Answer(found, show)


@segments_app.command("show")
@asks_node
def segments_show_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    segment_id: SegmentArgument,
) -> Answer:
    """Show everything known about one segment.

    Example: `strandline segments show orders 0 Qv4tWmyKTtqkvgMfJ9dZ3Q`
    """
    path = f"{partition_path(topic, partition)}/segments/{path_part(segment_id)}"
    segment = client.get(path)
    return Answer(segment, lambda: print_answer(segment))


@segments_app.command("history")
@asks_node
def segments_history_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    segment_id: SegmentArgument,
) -> Answer:
    """Show the metadata records about one segment, oldest first, as far back as the log goes.

    Example: `strandline segments history orders 0 Qv4tWmyKTtqkvgMfJ9dZ3Q`
    """
    path = f"{partition_path(topic, partition)}/segments/{path_part(segment_id)}/history"
    history = client.get(path)
    rows = [
        (
            change["metadata_offset"],
            human_time(change["timestamp_ms"]),
            change["state"],
            change["broker_id"],
            change["token"],
        )
        for change in history["changes"]
    ]
    columns = ["metadata offset", "time", "state", "broker", "token"]
    return Answer(history, lambda: print_table(columns, rows))


def _wire_state(state: StateChoice | None) -> str | None:
    """copy-finished -> COPY_SEGMENT_FINISHED."""
    return None if state is None else state.name.replace("_", "_SEGMENT_")
