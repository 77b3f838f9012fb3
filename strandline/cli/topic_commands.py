"""`strandline topics`: list and show topics, choose those that are tiered, delete tiered data."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest, NotFound
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.known_topics import ON_DISK
from strandline.cli.output import (
    console,
    human_bytes,
    human_time,
    print_fields,
    print_table,
    print_text,
)
from strandline.cli.policy_changes import policy_path
from strandline.cli.quantities import parse_wait_ms, size_text, time_text
from strandline.cli.query_answers import TopicArgument, topic_path
from strandline.cli.tiering_commands import topics_disable_command, topics_enable_command
from strandline.node import ambient

ASKED_EVERY_S = 1.0
ALL_TOPIC_IDS = "all"
NOT_MARKED = "no partition is marked for deletion"
TopicIdOption = Annotated[
    str | None,
    typer.Option(help="Topic id, or `all`; required if the topic was recreated."),
]

topics_app = command_group(
    "Topics and their tiered data: list, show, enable, disable, delete, deletion, undo-delete."
)
topics_app.command("enable")(topics_enable_command)
topics_app.command("disable")(topics_disable_command)

LIVE = (
    "{topic} still exists in Kafka: this node's broker has {live} of its partitions. After the "
    "grace period the deletion is final: the topic is never tiered again, and records that the "
    "broker's retention deletes are lost. Only a topic that is created again in Kafka is tiered "
    "again. To keep less of it in the tier, set its policy (`strandline policy set {topic}`)"
)


@topics_app.command("list")
@asks_node
def topics_list_command(client: NodeClient) -> Answer:
    """List the topics that the node knows from the metadata or its log directories.

    `tiered` says that the topic's name is enabled; its configs in Kafka may still exclude it.

    Example: `strandline topics list`
    """
    topics = list(client.pages("/v1/topics", "topics"))
    rows = [
        (
            t["topic"], t["why_not_tiered"] is None, t["partitions"], t["remote_segments"],
            human_bytes(t["remote_bytes"]),
        )
        for t in topics
    ]  # fmt: skip
    columns = ["topic", "tiered", "partitions", "segments", "size"]
    return Answer(topics, lambda: print_table(columns, rows))


@topics_app.command("show")
@asks_node
def topics_show_command(client: NodeClient, topic: TopicArgument) -> Answer:
    """Show one topic: its tiered data, its policy, and its deletion if it is marked.

    Example: `strandline topics show orders`
    """
    found = client.get(topic_path(topic), limit=1)
    policy = client.get(policy_path(topic))
    partitions = _tiered(client, topic)
    del found["partition_list"], found["next_cursor"]
    switches = {"copying": policy["copy_paused"], "deleting": policy["delete_paused"]}
    paused = [name for name, is_on in switches.items() if is_on]
    fields = {
        "topic": topic,
        "topic ids": ", ".join(found["topic_ids"]),
        "not tiered": found["why_not_tiered"],
        "partitions": found["partitions"],
        "segments": found["remote_segments"],
        "size": human_bytes(found["remote_bytes"]),
        "retention time": time_text(policy["retention_ms"]),
        "retention size": size_text(policy["retention_bytes"]),
        "paused": ", ".join(paused) or None,
        "deletion": _deletion_text(partitions),
    }
    document = found | {"policy": policy, "tiered_partitions": partitions}
    return Answer(document, lambda: print_fields(fields))


@topics_app.command("delete")
@asks_node
def topics_delete_command(
    client: NodeClient,
    topic: TopicArgument,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Mark the data; without this, only show what would be deleted."),
    ] = False,
    grace: Annotated[
        str, typer.Option(help="Time until data is deleted: `7d`, `12h`; `0s`: at once.")
    ] = "7d",
    topic_id: TopicIdOption = None,
) -> Answer:
    """Mark a topic's data in the tier for deletion; the broker's local log is not touched.

    Copying stops at once. The data is readable until the grace period is over; until then
    `strandline topics undo-delete` removes the mark.

    Example: `strandline topics delete orders`, then `strandline topics delete orders --yes`
    """
    grace_ms = parse_wait_ms(grace, field="--grace")
    partitions = _of_topic_id(_tiered(client, topic), topic, topic_id)
    live = _live(client, topic, {each["topic_id"] for each in partitions})
    change = None
    if yes:
        path = f"{topic_path(topic)}/tiered-data"
        change = client.change("DELETE", path, confirm=topic, grace_ms=grace_ms, topic_id=topic_id)
        partitions = _of_topic_id(_tiered(client, topic), topic, topic_id)
    segments = sum(each["remote_segments"] for each in partitions)
    size = human_bytes(sum(each["remote_bytes"] for each in partitions))
    if change is None:
        text = (
            f"nothing was changed: --yes marks {segments} segments, {size}, for deletion in {grace}"
        )
    else:
        marked = f"{change['changed']} partitions marked" if change["changed"] else "already marked"
        text = (
            f"{marked}; no data is deleted before "
            f"{human_time(change['goes_from_ms'])}. Until then, `strandline topics undo-delete "
            f"{topic}` removes the marks"
        )

    def show() -> None:
        _print_partitions(partitions)
        if live:
            print_text(LIVE.format(topic=topic, live=live))
        print_text(text)

    return Answer({"dry_run": not yes, "change": change, "partitions": partitions}, show)


@topics_app.command("undo-delete")
@asks_node
def topics_undo_delete_command(
    client: NodeClient, topic: TopicArgument, topic_id: TopicIdOption = ALL_TOPIC_IDS
) -> Answer:
    """Remove the deletion marks of a topic, if its deletion has not begun.

    Example: `strandline topics undo-delete orders`
    """
    path = f"{topic_path(topic)}/tiered-data/undo"
    change = client.change("POST", path, topic_id=topic_id)
    text = f"{change['changed']} partitions of {topic} are no longer marked for deletion"
    if not change["changed"]:
        text = f"no partition of {topic} was marked for deletion: nothing was changed"
    return Answer(change, lambda: print_text(text))


@topics_app.command("deletion")
@asks_node
def topics_deletion_command(
    client: NodeClient,
    topic: TopicArgument,
    wait: Annotated[
        str | None, typer.Option(help="Longest wait for the end of the deletion: `10m`.")
    ] = None,
) -> Answer:
    """Show the progress of the deletion of a topic's tiered data.

    The exit code is 8 if segments were left when the wait ended.

    Example: `strandline topics deletion orders --wait 10m`
    """
    wait_ms = 0 if wait is None else parse_wait_ms(wait, field="--wait")
    partitions = _tiered(client, topic)
    if not partitions and wait is None:
        raise NotFound(f"{topic} has no data in the tier: see `strandline topics list`")
    end_ms = ambient.now_ms() + wait_ms
    with console.status("") as status:
        while partitions and ambient.now_ms() < end_ms:
            status.update(_deletion_text(partitions) or NOT_MARKED)
            asyncio.run(ambient.sleep(ASKED_EVERY_S))
            partitions = _tiered(client, topic)

    def show() -> None:
        if partitions:
            _print_partitions(partitions)
            print_text(_deletion_text(partitions) or NOT_MARKED)
        else:
            print_text(f"{topic} has no data in the tier any more")

    incomplete = partitions and wait is not None
    return Answer(partitions, show, ExitCode.INCOMPLETE if incomplete else ExitCode.OK)


def _tiered(client: NodeClient, topic: str) -> list[dict[str, Any]]:
    try:
        return list(client.pages(f"{topic_path(topic)}/tiered-data", "partitions"))
    except NotFound:
        return []


def _live(client: NodeClient, topic: str, topic_ids: set[str]) -> int:
    """The number of the topic's partitions that this node finds on its broker's disk."""
    return sum(
        each["topic_id"] in topic_ids and each["role"] in ON_DISK
        for each in client.pages(topic_path(topic), "partition_list")
    )


def _of_topic_id(
    partitions: list[dict[str, Any]], topic: str, topic_id: str | None
) -> list[dict[str, Any]]:
    """The partitions that a deletion covers, by the same rule as in the node."""
    if not partitions:
        raise NotFound(f"{topic} has no data in the tier: see `strandline topics list`")
    ids = sorted({each["topic_id"] for each in partitions})
    if topic_id is None and len(ids) > 1:
        raise InvalidRequest(
            f"the topic {topic} was recreated: give one of its topic ids {', '.join(ids)}, or all",
            field="--topic-id",
        )
    chosen = [each for each in partitions if topic_id in (None, ALL_TOPIC_IDS, each["topic_id"])]
    if not chosen:
        raise NotFound(
            f"{topic} has no data with the topic id {topic_id}: give one of {', '.join(ids)}"
        )
    return chosen


def _print_partitions(partitions: list[dict[str, Any]]) -> None:
    print_table(
        ["partition", "topic id", "segments", "size", "deletion", "deleted from"],
        [
            (
                each["partition"],
                each["topic_id"],
                each["remote_segments"],
                human_bytes(each["remote_bytes"]),
                each["delete_state"],
                None if each["goes_from_ms"] is None else human_time(each["goes_from_ms"]),
            )
            for each in partitions
        ],
    )


def _deletion_text(partitions: list[dict[str, Any]]) -> str | None:
    """One line about the progress of the deletion; None if no partition is marked."""
    going = [each for each in partitions if each["delete_state"] is not None]
    if not going:
        return None
    started = sum(each["delete_state"] != "marked" for each in going)
    first = human_time(min(each["goes_from_ms"] for each in going))
    segments = sum(each["remote_segments"] for each in going)
    marked = (
        f"{len(going)} of {len(partitions)} partitions are marked for deletion, from {first} on"
    )
    return (
        f"{marked}; {started} are being deleted, {segments} segments are left"
        if started
        else marked
    )
