"""`strandline trash`: records that retention or a topic's deletion hid and that are not deleted
yet.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kafka_formats.errors import Conflict, InvalidRequest, NotFound
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.output import human_bytes, human_time, print_table, print_text
from strandline.cli.query_answers import partition_path, topic_path

PATH = "/v1/trash"
COLUMNS = [
    "topic", "partition", "state", "log start", "readable from", "segments", "size",
    "deleted from", "why",
]  # fmt: skip
trash_app = command_group(
    "The trash of expired and deleted segments: list, restore, release, empty."
)

TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.")]
PartitionArgument = Annotated[
    int | None, typer.Argument(min=0, help="Partition number; left out: all partitions.")
]
WhyOption = Annotated[str, typer.Option(help="Reason; it is recorded with your name.")]


@trash_app.command("list")
@asks_node
def trash_list_command(
    client: NodeClient,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
) -> Answer:
    """List the segments in the trash, the time of their deletion, and partitions whose retention is
    on hold.

    Example: `strandline trash list`
    """
    page = client.get(PATH, topic=topic, limit=1)
    found = _listed(client, topic)

    def show() -> None:
        print_table(COLUMNS, [_row(each) for each in found])
        if page["trash_s"] == 0:
            print_text("retention.trash_s is 0 on this node: expired segments are deleted at once")
        if page["delegated_partitions"]:
            print_text(
                f"{page['delegated_partitions']} partitions are in mode DELEGATED: the broker "
                "expires their segments, without a trash"
            )

    return Answer(page | {"partitions": found, "next_cursor": None}, show)


@trash_app.command("restore")
@asks_node
def trash_restore_command(
    client: NodeClient,
    topic: TopicArgument,
    why: WhyOption,
    partition: PartitionArgument = None,
    hold: Annotated[
        bool | None,
        typer.Option(
            help="Put the partitions' retention on hold until the topic gets a different "
            "retention; default: only if it would delete the same segments again."
        ),
    ] = None,
) -> Answer:
    """Restore records that retention hid from readers, or a topic that is marked for deletion.

    Correct a wrong policy first. If retention would delete the same segments again at once, it is
    put on hold until the topic gets a different retention or until `strandline trash release`.

    Example: `strandline trash restore orders --why "the policy was for logs"`
    """
    found = _of(client, topic, partition)
    done: list[object] = []
    lines = []
    body: dict[str, object] = {"why": why, "hold": hold}
    deleted = sorted({each["topic_id"] for each in found if each["state"] == "deleted"})
    for topic_id in deleted if partition is None else []:
        undo = f"{topic_path(topic)}/tiered-data/undo"
        change = client.change("POST", undo, body, topic_id=topic_id)
        lines.append(_undone_text(change))
    if lines:
        found = _of(client, topic, partition)  # without partitions restored with the topic
    for each in found:
        if each["marks"] and each["state"] != "deleted":
            path = f"{partition_path(topic, each['partition'])}/trash/restore"
            restored = client.change("POST", path, body, topic_id=each["topic_id"])
            done.append(restored)
            lines.append(_restored_text(restored))
    if not lines:
        raise NotFound(_not_there(topic, partition, found))
    return Answer({"topic_ids_restored": deleted if partition is None else [], "partitions": done},
                  lambda: print_text("\n".join(lines)))  # fmt: skip


@trash_app.command("release")
@asks_node
def trash_release_command(
    client: NodeClient, topic: TopicArgument, why: WhyOption, partition: PartitionArgument = None
) -> Answer:
    """Resume retention that a restore put on hold: its next pass expires segments by the policy.

    Example: `strandline trash release orders 0 --why "the policy is right after all"`
    """
    held = [each for each in _of(client, topic, partition) if each["hold"] is not None]
    if not held:
        raise NotFound(f"the retention of {topic} is not on hold: nothing was changed")
    done = [
        client.change(
            "POST",
            f"{partition_path(topic, each['partition'])}/trash/release",
            {"why": why},
            topic_id=each["topic_id"],
        )
        for each in held
    ]
    return Answer(
        {"partitions": done},
        lambda: print_text(f"retention of {len(done)} partitions of {topic} is resumed"),
    )


@trash_app.command("empty")
@asks_node
def trash_empty_command(
    client: NodeClient,
    topic: TopicArgument,
    why: WhyOption,
    partition: PartitionArgument = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without this, only show what would be deleted.")
    ] = False,
    as_of: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Metadata offset that a run without `--yes` prints: segments that were moved to "
            "the trash after it stay.",
        ),
    ] = None,
) -> Answer:
    """Delete expired segments for good, before their time in the trash is over.

    Example: `strandline trash empty orders --why "the disk is full" --yes --as-of 5107`
    """
    if yes and as_of is None:
        raise InvalidRequest(
            "--yes needs this metadata offset: run the command without --yes, which prints it",
            field="--as-of",
        )
    found = [each for each in _of(client, topic, partition) if each["marks"]]
    if not found:
        raise NotFound(_not_there(topic, partition, _of(client, topic, partition)))
    ends = [_up_to(each, as_of) for each in found]
    left = ends.count(None)
    if left == len(found):
        raise Conflict(
            f"all segments in the trash of {topic} were moved there after --as-of, so none was "
            "deleted: run the command without --yes, which prints a new offset"
        )
    done = [
        client.change(
            "POST",
            f"{partition_path(topic, each['partition'])}/trash/empty",
            {"reason": why, "dry_run": not yes, "up_to_offset": up_to},
            topic_id=each["topic_id"],
        )
        for each, up_to in zip(found, ends, strict=True)
        if up_to is not None
    ]
    last = max(mark["marked_at_offset"] for each in found for mark in each["marks"])
    return Answer(
        {"partitions": done, "as_of": last if as_of is None else as_of, "left": left},
        lambda: print_text(_emptied_text(done, None if yes else as_of or last, left)),
    )


def _up_to(of: dict[str, Any], as_of: int | None) -> int | None:
    """The end offset (exclusive) of the highest expiry mark that was recorded up to metadata offset
    `as_of`, or of all marks if that is None; None if there is no such mark.
    """
    stood = (each for each in of["marks"] if as_of is None or each["marked_at_offset"] <= as_of)
    return max((int(each["before_offset"]) for each in stood), default=None)


def _emptied_text(done: list[Any], as_of: int | None, left: int) -> str:
    """The text of the command's result; `as_of` is None for a run with `--yes`. `left` partitions
    have only segments that were moved to the trash after `as_of`.
    """
    segments, size = (sum(each[name] for each in done) for name in ("segment_count", "size_bytes"))
    text = f"{segments} segments of {len(done)} partitions, {human_bytes(size)}"
    stays = f". All segments of {left} more partitions were moved there later" if left else ""
    if as_of is None:
        return f"{text}, are deleted{stays}"
    return f"nothing was changed: --yes --as-of {as_of} deletes {text}, for good{stays}"


def _listed(client: NodeClient, topic: str | None) -> list[dict[str, Any]]:
    return list(client.pages(PATH, "partitions", topic=topic))


def _of(client: NodeClient, topic: str, partition: int | None) -> list[dict[str, Any]]:
    return [each for each in _listed(client, topic) if partition in (None, each["partition"])]


def _not_there(topic: str, partition: int | None, found: list[dict[str, Any]]) -> str:
    if partition is not None and any(each["state"] == "deleted" for each in found):
        return (
            f"the whole topic {topic} is marked for deletion, so give no partition: `strandline "
            f"trash restore {topic}` restores all of it"
        )
    of = topic if partition is None else f"{topic}-{partition}"
    return f"{of} has no segment in the trash, so nothing was changed: see `strandline trash list`"


def _undone_text(done: dict[str, Any]) -> str:
    """The text for a topic's undone deletion. A node of an older release neither restores expired
    segments nor holds retention in this step, and its answer lacks both fields.
    """
    text = f"{done['changed']} partitions of {done['topic']} are no longer marked for deletion"
    restored, held = done.get("restored", 0), done.get("held", 0)
    if restored:
        text += f"; of {restored} the expired segments are restored, too"
    if held:
        text += f". The retention of {held} is on hold, {_until(done['topic'])}"
    return text


def _until(topic: str) -> str:
    return f"until the topic gets a different retention, or `strandline trash release {topic}`"


def _restored_text(done: dict[str, Any]) -> str:
    text = (
        f"{done['topic']}-{done['partition']} is readable from {done['log_start_offset']} on "
        f"again: {done['segments']} segments, {human_bytes(done['size_bytes'])}"
    )
    if not done["hold"]:
        return text
    return (
        f"{text}. Its retention is on hold, since it would delete them again or that is not known "
        f"now, {_until(done['topic'])}"
    )


def _row(each: dict[str, Any]) -> tuple[object, ...]:
    goes = each["goes_from_ms"]
    why = each["marks"][-1]["why"] if each["marks"] else None
    if each["hold"] is not None:
        why = f"on hold by {each['hold']['who']}: {each['hold']['why']}"
    return (
        each["topic"], each["partition"], each["state"], each["log_start_offset"],
        each["readable_from_offset"], each["segments"], human_bytes(each["size_bytes"]),
        None if goes is None else human_time(goes), why,
    )  # fmt: skip
