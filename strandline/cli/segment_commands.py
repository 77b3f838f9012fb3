"""`strandline segments`: list, show, history; asked of a running node over HTTP."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import human_bytes, human_time, print_json, print_table
from strandline.cli.query_answers import (
    PartitionArgument,
    TopicArgument,
    epochs_text,
    partition_path,
    path_part,
    show,
    state_name,
)

SegmentArgument = Annotated[str, typer.Argument(help="Segment id, as `segments list` shows it.")]


class StateChoice(StrEnum):
    """The states as the table shows them; the interface has Kafka's long names."""

    COPY_STARTED = "copy-started"
    COPY_FINISHED = "copy-finished"
    DELETE_STARTED = "delete-started"
    DELETE_FINISHED = "delete-finished"


segments_app = typer.Typer(
    help="Segments of a partition: list, show, history.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@segments_app.command("list")
def segments_list_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    state: Annotated[StateChoice | None, typer.Option(help="Only in this state.")] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Segments of a partition, by start offset.

    Example: `strandline segments list orders 0`
    """
    path = f"{partition_path(topic, partition)}/segments"
    with NodeClient(url, token_file) as client:
        found = list(client.pages(path, "segments", state=_wire_state(state)))
    if json:
        print_json(found)
        return ExitCode.OK
    print_table(
        ["segment id", "state", "from", "to", "epochs", "size", "newest record"],
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
    return ExitCode.OK


@segments_app.command("show")
def segments_show_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    segment_id: SegmentArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Everything known of one segment.

    Example: `strandline segments show orders 0 Qv4tWmyKTtqkvgMfJ9dZ3Q`
    """
    path = f"{partition_path(topic, partition)}/segments/{path_part(segment_id)}"
    with NodeClient(url, token_file) as client:
        show(client.get(path), as_json=json)
    return ExitCode.OK


@segments_app.command("history")
def segments_history_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    segment_id: SegmentArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """The metadata records about one segment, oldest first, as far as the log has them.

    Example: `strandline segments history orders 0 Qv4tWmyKTtqkvgMfJ9dZ3Q`
    """
    path = f"{partition_path(topic, partition)}/segments/{path_part(segment_id)}/history"
    with NodeClient(url, token_file) as client:
        history = client.get(path)
    if json:
        print_json(history)
        return ExitCode.OK
    print_table(
        ["metadata offset", "time", "state", "broker", "token"],
        [
            (
                change["metadata_offset"],
                human_time(change["timestamp_ms"]),
                change["state"],
                change["broker_id"],
                change["token"],
            )
            for change in history["changes"]
        ],
    )
    return ExitCode.OK


def _wire_state(state: StateChoice | None) -> str | None:
    """copy-finished -> COPY_SEGMENT_FINISHED."""
    return None if state is None else state.name.replace("_", "_SEGMENT_")
