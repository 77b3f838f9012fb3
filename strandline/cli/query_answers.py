"""Paths of the HTTP interface, and answers as fields, for the commands that query a node."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import check_topic_name
from strandline.cli.output import print_fields

PARTITION_MAX = 2**31 - 1
TopicArgument = Annotated[str, typer.Argument(help="Topic name.")]
PartitionArgument = Annotated[
    int, typer.Argument(min=0, max=PARTITION_MAX, help="Partition number.")
]
NewestIncarnationOption = Annotated[
    str | None,
    typer.Option("--topic-id", help="Topic id; default: the newest topic of this name."),
]
DoItOption = Annotated[
    bool, typer.Option("--yes", help="Do it; without it, only show what would be done.")
]


def topic_path(topic: str) -> str:
    """The path of a topic. InvalidRequest: not a legal topic name."""
    check_topic_name(topic)
    return f"/v1/topics/{topic}"


def partition_path(topic: str, partition: int) -> str:
    return f"{topic_path(topic)}/partitions/{partition}"


def path_part(text: str) -> str:
    """One segment of a path, quoted. InvalidRequest: `text` would lead to a different route."""
    if text in ("", ".", ".."):
        raise InvalidRequest(f"{text!r} can't be a name: give the one that the list shows")
    return quote(text, safe="")


def state_name(name: str) -> str:
    """COPY_SEGMENT_FINISHED -> `copy finished`: a table has little room."""
    return name.lower().replace("_segment_", " ")


def epochs_text(entries: list[dict[str, int]]) -> str:
    return " ".join(f"{entry['epoch']}:{entry['start_offset']}" for entry in entries)


def print_answer(answer: dict[str, Any]) -> None:
    """Print every field of an answer; lists of segments are shown as their number."""
    fields = dict(answer)
    for name in ("leader_epochs", "lineage"):
        if name in fields:
            fields[name] = epochs_text(fields[name])
    segment = fields.get("segment")
    if isinstance(segment, dict):
        offsets = f"offsets {segment['start_offset']} to {segment['end_offset']}"
        fields["segment"] = f"{segment['segment_id']}, {offsets}"
    for name in ("left_overs", "lost_ranges"):
        if name in fields:
            fields[name] = len(fields[name])
    print_fields({name.replace("_", " "): _flat(value) for name, value in fields.items()})


def _flat(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_flat(each)}" for key, each in value.items())
    return value
