"""`strandline topics`: list, show, and the deletion of a topic's tiered data."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest, NotFound
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import (
    console,
    human_bytes,
    human_time,
    print_fields,
    print_json,
    print_table,
)
from strandline.cli.policy_changes import policy_path
from strandline.cli.quantities import parse_wait_ms, size_text, time_text
from strandline.cli.query_answers import TopicArgument, topic_path
from strandline.node import ambient

ASKED_EVERY_S = 1.0
ALL_TOPIC_IDS = "all"
TopicIdOption = Annotated[
    str | None,
    typer.Option(help="Which incarnation, or `all`; needed where the topic was made again."),
]

topics_app = typer.Typer(
    help="Topics: list, show, delete their tiered data, deletion, undo-delete.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

ON_DISK = ("leader", "follower", "unknown", "not_tiered")
LIVE = (
    "{topic} still exists in Kafka: this node's broker has {live} partitions of it. After the "
    "grace the deletion is final: nothing of this topic is ever tiered again, and what its local "
    "retention deletes then is lost. Only a topic made anew in Kafka begins anew. To tier less "
    "of it, set its policy (`strandline policy set {topic}`)"
)


@topics_app.command("list")
def topics_list_command(
    url: UrlOption = DEFAULT_URL, token_file: TokenFileOption = None, json: JsonOption = False
) -> int:
    """Topics that the node knows: in the metadata, or in its log directories.

    Example: `strandline topics list`
    """
    with NodeClient(url, token_file) as client:
        topics = list(client.pages("/v1/topics", "topics"))
    if json:
        print_json(topics)
        return ExitCode.OK
    print_table(
        ["topic", "partitions", "segments", "size"],
        [
            (t["topic"], t["partitions"], t["remote_segments"], human_bytes(t["remote_bytes"]))
            for t in topics
        ],
    )
    return ExitCode.OK


@topics_app.command("show")
def topics_show_command(
    topic: TopicArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """One topic: what is tiered of it, its policy, and whether it is to be deleted.

    Example: `strandline topics show orders`
    """
    with NodeClient(url, token_file) as client:
        found = client.get(topic_path(topic), limit=1)
        policy = client.get(policy_path(topic))
        partitions = _tiered(client, topic)
    del found["partition_list"], found["next_cursor"]
    if json:
        print_json(found | {"policy": policy, "tiered_partitions": partitions})
        return ExitCode.OK
    switches = {"copying": policy["copy_paused"], "deleting": policy["delete_paused"]}
    paused = [name for name, is_on in switches.items() if is_on]
    print_fields(
        {
            "topic": topic,
            "topic ids": ", ".join(found["topic_ids"]),
            "partitions": found["partitions"],
            "segments": found["remote_segments"],
            "size": human_bytes(found["remote_bytes"]),
            "retention time": time_text(policy["retention_ms"]),
            "retention size": size_text(policy["retention_bytes"]),
            "paused": ", ".join(paused) or None,
            "deletion": _deletion_text(partitions),
        }
    )
    return ExitCode.OK


@topics_app.command("delete")
def topics_delete_command(
    topic: TopicArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Mark it; without it, only say what would go.")
    ] = False,
    grace: Annotated[
        str, typer.Option(help="No byte goes before: `7d`, `12h`; `0s` as soon as a node looks.")
    ] = "7d",
    topic_id: TopicIdOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Mark a topic's data in the tier for deletion. What the broker has locally is not touched.

    Copying stops at once, reading goes on until the grace is over, and until then
    `strandline topics undo-delete` takes it back.

    Example: `strandline topics delete orders`, then `strandline topics delete orders --yes`
    """
    grace_ms = parse_wait_ms(grace, field="--grace")
    with NodeClient(url, token_file) as client:
        partitions = _of_topic_id(_tiered(client, topic), topic, topic_id)
        live = _live(client, topic, {each["topic_id"] for each in partitions})
        change = None
        if yes:
            path = f"{topic_path(topic)}/tiered-data"
            change = client.change(
                "DELETE", path, confirm=topic, grace_ms=grace_ms, topic_id=topic_id
            )
            partitions = _of_topic_id(_tiered(client, topic), topic, topic_id)
    if json:
        print_json({"dry_run": not yes, "change": change, "partitions": partitions})
        return ExitCode.OK
    _print_partitions(partitions)
    if live:
        console.print(LIVE.format(topic=topic, live=live), markup=False)
    segments = sum(each["remote_segments"] for each in partitions)
    size = human_bytes(sum(each["remote_bytes"] for each in partitions))
    if change is None:
        text = f"nothing was marked: --yes marks {segments} segments, {size}, to go in {grace}"
    else:
        marked = f"{change['changed']} partitions marked" if change["changed"] else "marked before"
        text = (
            f"{marked}; nothing goes before "
            f"{human_time(change['goes_from_ms'])}. `strandline topics undo-delete {topic}` takes "
            "it back"
        )
    console.print(text, markup=False)
    return ExitCode.OK


@topics_app.command("undo-delete")
def topics_undo_delete_command(
    topic: TopicArgument,
    topic_id: TopicIdOption = ALL_TOPIC_IDS,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Take the deletion marks of a topic back, as long as no byte went.

    Example: `strandline topics undo-delete orders`
    """
    path = f"{topic_path(topic)}/tiered-data/undo"
    with NodeClient(url, token_file) as client:
        change = client.change("POST", path, topic_id=topic_id)
    if json:
        print_json(change)
    elif change["changed"]:
        console.print(f"{change['changed']} partitions of {topic} stay", markup=False)
    else:
        console.print(f"nothing of {topic} was to go: all of it stays", markup=False)
    return ExitCode.OK


@topics_app.command("deletion")
def topics_deletion_command(
    topic: TopicArgument,
    wait: Annotated[
        str | None, typer.Option(help="Wait so long, at most, until all of it is gone: `10m`.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """How far the deletion of a topic's tiered data is. Exit code 8: waited, and it is not gone.

    Example: `strandline topics deletion orders --wait 10m`
    """
    wait_ms = 0 if wait is None else parse_wait_ms(wait, field="--wait")
    with NodeClient(url, token_file) as client:
        partitions = _tiered(client, topic)
        if not partitions and wait is None:
            raise NotFound(f"nothing of {topic} is in the tier")
        end_ms = ambient.now_ms() + wait_ms
        with console.status("") as status:
            while partitions and ambient.now_ms() < end_ms:
                status.update(_deletion_text(partitions) or "nothing is to go")
                asyncio.run(ambient.sleep(ASKED_EVERY_S))
                partitions = _tiered(client, topic)
    if json:
        print_json(partitions)
    elif partitions:
        _print_partitions(partitions)
        console.print(_deletion_text(partitions) or "nothing of it is to go", markup=False)
    else:
        console.print(f"nothing of {topic} is in the tier any more", markup=False)
    return ExitCode.INCOMPLETE if partitions and wait is not None else ExitCode.OK


def _tiered(client: NodeClient, topic: str) -> list[dict[str, Any]]:
    try:
        return list(client.pages(f"{topic_path(topic)}/tiered-data", "partitions"))
    except NotFound:
        return []


def _live(client: NodeClient, topic: str, topic_ids: set[str]) -> int:
    """How many of its partitions the node that is asked finds on its broker's disk."""
    return sum(
        each["topic_id"] in topic_ids and each["role"] in ON_DISK
        for each in client.pages(topic_path(topic), "partition_list")
    )


def _of_topic_id(
    partitions: list[dict[str, Any]], topic: str, topic_id: str | None
) -> list[dict[str, Any]]:
    """Those that a deletion takes, as the node decides it."""
    if not partitions:
        raise NotFound(f"nothing of {topic} is in the tier; `strandline topics list` shows what is")
    ids = sorted({each["topic_id"] for each in partitions})
    if topic_id is None and len(ids) > 1:
        raise InvalidRequest(
            f"the topic {topic} was made again: say which of {', '.join(ids)}, or all",
            field="--topic-id",
        )
    chosen = [each for each in partitions if topic_id in (None, ALL_TOPIC_IDS, each["topic_id"])]
    if not chosen:
        raise NotFound(f"{topic} has no data with the topic id {topic_id}; it has {', '.join(ids)}")
    return chosen


def _print_partitions(partitions: list[dict[str, Any]]) -> None:
    print_table(
        ["partition", "topic id", "segments", "size", "deletion", "goes from"],
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
    """One line for all of them; None where nothing is to go."""
    going = [each for each in partitions if each["delete_state"] is not None]
    if not going:
        return None
    started = sum(each["delete_state"] != "marked" for each in going)
    first = human_time(min(each["goes_from_ms"] for each in going))
    segments = sum(each["remote_segments"] for each in going)
    marked = f"{len(going)} of {len(partitions)} partitions are to go, from {first} on"
    return f"{marked}; {started} are going, {segments} segments are left" if started else marked
