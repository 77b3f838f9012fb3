"""`strandline policy`: a topic's retention in the tier and its kill switches."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest, NotFound
from strandline.cli.asking import Answer, asks_node, command_group
from strandline.cli.client import NodeClient
from strandline.cli.known_topics import AheadOption, check_topic_known
from strandline.cli.output import human_bytes, print_fields, print_text
from strandline.cli.policy_changes import (
    change_policy,
    changed_policy,
    policy_path,
    standing_policy,
)
from strandline.cli.quantities import parse_size_bytes, parse_time_ms, size_text, time_text
from strandline.cli.query_answers import TopicArgument, partition_path, topic_path


class SwitchChoice(StrEnum):
    """The state of a topic's kill switch."""

    RUNNING = "running"
    PAUSED = "paused"


class FollowChoice(StrEnum):
    """Handling of DeleteRecords in the tier: `followed` removes from the tier the records that
    DeleteRecords removes on the broker.
    """

    FOLLOWED = "followed"
    IGNORED = "ignored"


TopicIdOption = Annotated[
    str | None, typer.Option(help="Topic id; default: the newest topic of this name.")
]

RETENTION = ("retention_ms", "retention_bytes")
SWITCHES = frozenset({"copy_paused", "delete_paused"})

policy_app = command_group("A topic's retention in the tier and its kill switches: show, set.")


@policy_app.command("show")
@asks_node
def policy_show_command(
    client: NodeClient, topic: TopicArgument, topic_id: TopicIdOption = None
) -> Answer:
    """Show a topic's retention in the tier, and whether copying or deleting is paused.

    Example: `strandline policy show orders`
    """
    policy = client.get(policy_path(topic), topic_id=topic_id)
    if policy["offset"] is None:
        check_topic_known(client, topic, to_change=False)
    return Answer(policy, lambda: print_fields(_fields(policy)))


@policy_app.command("set")
@asks_node
def policy_set_command(
    client: NodeClient,
    topic: TopicArgument,
    retention_time: Annotated[
        str | None, typer.Option(help="Keep records for `7d`, `36h`, or `unlimited`.")
    ] = None,
    retention_size: Annotated[
        str | None,
        typer.Option(help="Keep `100GiB` of each partition, or `unlimited`."),
    ] = None,
    copying: Annotated[
        SwitchChoice | None, typer.Option(help="Copy the topic's segments, or pause copying.")
    ] = None,
    deleting: Annotated[
        SwitchChoice | None, typer.Option(help="Delete the topic's segments, or pause deleting.")
    ] = None,
    delete_records: Annotated[
        FollowChoice | None,
        typer.Option(
            help="Remove from the tier what DeleteRecords removes on the broker, or keep it."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; change nothing.")
    ] = False,
    ahead: AheadOption = False,
    topic_id: TopicIdOption = None,
) -> Answer:
    """Change the given parts of a topic's policy, on all nodes; the other parts stay.

    Example: `strandline policy set orders --retention-time 90d --retention-size 500GiB`
    """
    changes = _changes(retention_time, retention_size, copying, deleting)
    if delete_records is not None:
        changes["follow_delete_records"] = delete_records is FollowChoice.FOLLOWED
    if not changes:
        raise InvalidRequest(
            "no part of the policy is given: give --retention-time, --retention-size, --copying, "
            "--deleting or --delete-records"
        )
    before = client.get(policy_path(topic), topic_id=topic_id)
    if changes.keys() <= SWITCHES:
        before = standing_policy(client, topic)  # its retention may be for an earlier topic id
    if before["offset"] is None and not ahead:
        check_topic_known(client, topic, to_change=True)
    policy = before | changed_policy(before, changes)
    effect = _effect(client, topic, policy)
    trash = _trash(client, topic, policy["topic_id"])
    if not dry_run:
        policy = change_policy(client, before, changes)

    def show() -> None:
        print_fields(_fields(policy))
        told = _effect_text(policy, effect, dry_run=dry_run) + _following_text(before, policy)
        print_text(told)
        if trash["segments"] and any(policy[name] != before[name] for name in RETENTION):
            print_text(_trash_text(topic, trash))

    answer = {"policy": policy, "dry_run": dry_run, "next_pass": effect, "in_trash": trash}
    return Answer(answer, show)


def _changes(
    retention_time: str | None,
    retention_size: str | None,
    copying: SwitchChoice | None,
    deleting: SwitchChoice | None,
) -> dict[str, object]:
    changes: dict[str, object] = {}
    if retention_time is not None:
        changes["retention_ms"] = parse_time_ms(retention_time, field="--retention-time")
    if retention_size is not None:
        changes["retention_bytes"] = parse_size_bytes(retention_size, field="--retention-size")
    if copying is not None:
        changes["copy_paused"] = copying is SwitchChoice.PAUSED
    if deleting is not None:
        changes["delete_paused"] = deleting is SwitchChoice.PAUSED
    return changes


def _effect(client: NodeClient, topic: str, body: dict[str, object]) -> dict[str, Any]:
    """The sums over all partitions of the segments that the next pass would delete by the new
    retention.
    """
    effect: dict[str, Any] = {
        "segments": 0, "expiring_bytes": 0, "tiered_bytes": 0, "partitions_braked": 0,
        "held_back": None,
    }  # fmt: skip
    try:
        partitions = list(client.pages(topic_path(topic), "partition_list"))
    except NotFound:
        return effect
    asked = {name: body[name] for name in RETENTION}
    for each in partitions:
        if not each["remote_segments"] or each["topic_id"] != body["topic_id"]:
            continue
        path = f"{partition_path(topic, each['partition'])}/retention/plan"
        plan = client.ask(path, asked, topic_id=each["topic_id"])
        effect["segments"] += plan["segment_count"]
        effect["expiring_bytes"] += plan["expiring_bytes"]
        effect["tiered_bytes"] += plan["tiered_bytes"]
        effect["partitions_braked"] += plan["brake"] is not None
        effect["held_back"] = effect["held_back"] or plan["held_back"]
    return effect


def _trash(client: NodeClient, topic: str, topic_id: str | None) -> dict[str, int]:
    """The sums of the topic's expired segments in the trash, which are deleted under any policy."""
    found = [
        each
        for each in client.pages("/v1/trash", "partitions", topic=topic)
        if each["topic_id"] == topic_id and each["state"] == "expired"
    ]
    return {name: sum(each[name] for each in found) for name in ("segments", "size_bytes")}


def _trash_text(topic: str, trash: dict[str, int]) -> str:
    return (
        f"{trash['segments']} segments, {human_bytes(trash['size_bytes'])}, that expired earlier "
        "are in the trash. They are deleted once their time there is over, also if the policy now "
        f"keeps them: `strandline trash restore {topic} --why ...` brings them back"
    )


def _effect_text(policy: dict[str, Any], effect: dict[str, Any], *, dry_run: bool) -> str:
    start = "nothing was changed; with this change, " if dry_run else ""
    if not effect["segments"]:
        return f"{start}no segment would be deleted now"
    sums = (
        f"{effect['segments']} segments are deleted, {human_bytes(effect['expiring_bytes'])} of "
        f"{human_bytes(effect['tiered_bytes'])}"
    )
    text = f"{start}{sums}, in the next pass of retention"
    if policy["delete_paused"]:
        text = f"{start}{sums}, once deleting is resumed"
    elif effect["held_back"] is not None:
        text = f"{start}{sums}, but not now: {effect['held_back']}"
    if effect["partitions_braked"]:
        text += (
            f". In {effect['partitions_braked']} partitions that is above the limit of a pass: "
            "retention waits there until `strandline retention accept`"
        )
    return text


def _following_text(before: dict[str, Any], policy: dict[str, Any]) -> str:
    if policy["follow_delete_records"] == before["follow_delete_records"]:
        return ""
    if policy["follow_delete_records"]:
        return (
            ". Records that DeleteRecords removes on the broker from now on are also removed from "
            "the tier"
        )
    return ". Records that DeleteRecords removes on the broker stay in the tier"


def _fields(policy: dict[str, Any]) -> dict[str, object]:
    offset, set_for = policy["offset"], policy["set_for"]
    when = "never: the defaults apply" if offset is None else f"at metadata offset {offset}"
    if set_for not in (None, policy["topic_id"]):
        when += f", its retention only for topic id {set_for}"
    return {
        "topic": policy["topic"],
        "topic id": policy["topic_id"] or "not known yet",
        "retention time": time_text(policy["retention_ms"]),
        "retention size": f"{size_text(policy['retention_bytes'])}"
        + ("" if policy["retention_bytes"] is None else " a partition"),
        "copying": "paused" if policy["copy_paused"] else "running",
        "deleting": "paused" if policy["delete_paused"] else "running",
        "DeleteRecords": "followed" if policy["follow_delete_records"] else "not followed",
        "set": when,
    }
