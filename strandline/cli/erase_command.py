"""`strandline erase`: delete a topic's tiered data, or a part of it, with all versions, and
report.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from kafka_formats.errors import Conflict, InvalidRequest, NotFound
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.erase_report import print_report
from strandline.cli.exit_codes import ExitCode
from strandline.cli.known_topics import ON_DISK
from strandline.cli.output import console
from strandline.cli.quantities import parse_wait_ms
from strandline.cli.query_answers import partition_path, path_part, topic_path
from strandline.cli.whole_cluster import whole_view
from strandline.node import ambient

ASKED_EVERY_S = 0.5
JOB_PATH = "/v1/jobs/erase"
_REPEAT = "; then run the erasure again"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The erasure as the API takes it, without `dry_run`; `refused`: why it can't be done now."""

    body: dict[str, object]
    refused: str | None
    topic_ids: tuple[str, ...] = ()


@asks_node
def erase_command(
    client: NodeClient,
    topic: Annotated[str, typer.Option(help="Name of the topic.")],
    why: Annotated[str, typer.Option(help="Reason; it is recorded with your name.")],
    partition: Annotated[int | None, typer.Option(min=0, help="Needs --before.")] = None,
    before: Annotated[
        int | None, typer.Option(min=0, help="The first offset to keep; needs --partition.")
    ] = None,
    topic_id: Annotated[
        str | None, typer.Option(help="Topic id; required if the topic was recreated.")
    ] = None,
    tier_only: Annotated[
        bool,
        typer.Option(
            "--tier-only", help="Erase although brokers still have the records on their disks."
        ),
    ] = False,
    wait: Annotated[
        str, typer.Option(help="Longest wait until everything is deleted: `30m`, `2h`.")
    ] = "1h",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it; without it, only show what would be deleted.")
    ] = False,
) -> Answer:
    """Delete a deleted topic's tiered data, or segments below an offset, for good, and report.

    The data skips the trash, and this can't be undone. Versions that a bucket keeps are deleted,
    too. Only whole segments are deleted: the one that contains the offset is kept, and hidden below
    it. Run again after an interruption, it continues. Exit code 8: something is left; the report
    says what, and why.

    Example: `strandline erase --topic orders --why "order 7"`, then the same with `--yes`
    """
    deadline_s = _deadline_s(wait)
    if (partition is None) != (before is None):
        raise InvalidRequest(
            "give both, or neither: a topic is erased as a whole", field="--partition and --before"
        )
    if partition is None or before is None:
        asked = _topic(client, topic, topic_id)
    else:
        asked = _below(client, (topic, partition, before), topic_id, tier_only=tier_only)
    body = asked.body | {"reason": why, "deadline_s": deadline_s}
    if yes and asked.refused is not None:
        raise Conflict(f"nothing was changed: {asked.refused}")
    job = _ended(client, body | {"dry_run": True})
    if yes:
        _order(client, asked, why)
        job = _ended(client, body | {"dry_run": False})
    job["refused"] = asked.refused
    code = ExitCode.OK if job["state"] == "finished" else ExitCode.INCOMPLETE
    return Answer(job, lambda: print_report(job), code)


def _deadline_s(wait: str) -> float:
    deadline_s = parse_wait_ms(wait, field="--wait") / 1000
    if deadline_s <= 0:
        raise InvalidRequest("must be longer than 0", field="--wait")
    return deadline_s


def _ended(client: NodeClient, body: dict[str, object]) -> dict[str, Any]:
    """The job's report, once it has ended."""
    job: dict[str, Any] = client.change_node("POST", JOB_PATH, body)
    path = f"{JOB_PATH}/{path_part(job['id'])}"
    with console.status("looking") as status:
        while job["state"] == "running":
            asyncio.run(ambient.sleep(ASKED_EVERY_S))
            job = client.get(path)
            going = sum(each["objects"] + each["versions"] for each in job["stores"].values())
            status.update(
                f"{job['waiting']} of {job['segments']} segments are not deleted yet, {going} "
                "objects and versions found"
            )
    return job


def _order(client: NodeClient, asked: _Asked, why: str) -> None:
    """Make the step that can't be undone: move the log start, or end the topic's grace period."""
    topic, before = str(asked.body["topic"]), asked.body["before_offset"]
    if before is not None:
        path = (
            f"{partition_path(topic, int(str(asked.body['partition'])))}/retention/delete-records"
        )
        body = {"before_offset": before, "reason": why, "dry_run": False}
        client.change("POST", path, body, topic_id=asked.body["topic_id"])
        return
    path = f"{topic_path(topic)}/tiered-data"
    for each in asked.topic_ids:
        with suppress(Conflict):  # the deletion of some partitions has started
            client.change("POST", f"{path}/undo", topic_id=each)  # to set a different grace period
        client.change("DELETE", path, confirm=topic, grace_ms=0, topic_id=each)


def _topic(client: NodeClient, topic: str, topic_id: str | None) -> _Asked:
    try:
        found = list(client.pages(f"{topic_path(topic)}/tiered-data", "partitions"))
    except NotFound:
        found = []  # deleted already: old versions may be left
    ids = sorted({each["topic_id"] for each in found})
    if topic_id is None and len(ids) > 1:
        raise InvalidRequest(
            f"the topic {topic} was recreated: give one of its topic ids, {', '.join(ids)}",
            field="--topic-id",
        )
    chosen = [each for each in found if topic_id in (None, each["topic_id"])]
    unmarked = {each["topic_id"] for each in chosen if each["delete_state"] is None}
    going = tuple(sorted({each["topic_id"] for each in chosen if not _goes_at_once(each)}))
    asked = ids[0] if topic_id is None and ids else topic_id
    body: dict[str, object] = {
        "topic": topic, "topic_id": asked, "partition": None, "before_offset": None,
    }  # fmt: skip
    return _Asked(body, _why_alive(client, topic, unmarked) if unmarked else None, going)


def _goes_at_once(partition: dict[str, Any]) -> bool:
    state = partition["delete_state"]
    return state is not None and (state != "marked" or partition["grace_ms"] == 0)


def _why_alive(client: NodeClient, topic: str, topic_ids: set[str]) -> str | None:
    """The reason to believe that a topic without a deletion mark still exists."""
    view = whole_view(client, "/v1/cluster/partitions", "partitions", topic=topic)
    for each in view["nodes"]:
        if not each["answered"]:  # also a stopped or fenced one: its broker may run
            return (
                f"node {each['node']} does not answer, and may know that {topic} still exists: "
                f"{each['text']}{_REPEAT}. Or mark the topic: `strandline topics delete {topic} "
                "--yes`"
            )
    rows = [each for each in view["partitions"] if each["topic_id"] in topic_ids]
    unlisted = {each["claimed_by_node"] for each in rows} - {None, *map(_node_of, view["nodes"])}
    if unlisted:
        return (
            f"node {min(unlisted)} copied {topic}, and was removed from the list of nodes: its "
            f"broker may know that {topic} still exists. Start it{_REPEAT}. Or mark the topic: "
            f"`strandline topics delete {topic} --yes`"
        )
    live = sum(each["role"] in ON_DISK for each in rows)
    if live or any(each["mode"] == "delegated" for each in rows):
        return (
            f"{topic} exists in Kafka: brokers have {live} of its partitions. Delete the topic "
            f"there{_REPEAT}. To keep it and erase its beginning, give --partition and --before. "
            "To delete only its tiered data and never tier it again, use `strandline topics "
            f"delete {topic} --yes`"
        )
    return None


def _node_of(told: dict[str, Any]) -> int:
    return int(told["node"])


def _below(
    client: NodeClient, of: tuple[str, int, int], topic_id: str | None, *, tier_only: bool
) -> _Asked:
    topic, partition, before = of
    path = partition_path(topic, partition)
    found = client.get(path, topic_id=topic_id)
    body: dict[str, object] = {
        "topic": topic, "topic_id": found["topic_id"], "partition": partition,
        "before_offset": before,
    }  # fmt: skip
    name = f"{topic}-{partition}"
    if found["mode"] == "delegated":
        return _Asked(
            body,
            f"{name} is in mode DELEGATED: its broker decides what is deleted. Delete the "
            "records there, with kafka-delete-records, or the topic",
        )
    if found["delete_state"] is not None:
        return _Asked(body, f"{topic} is being deleted: leave out --partition and --before")
    planned = client.change(
        "POST", f"{path}/retention/delete-records",
        {"before_offset": before, "reason": "a dry run", "dry_run": True},
        topic_id=found["topic_id"],
    )  # fmt: skip
    held = planned["held_back"]
    if held is not None:
        return _Asked(body, held)
    return _Asked(body, None if tier_only else _why_on_disk(client, of, found))


def _why_on_disk(client: NodeClient, of: tuple[str, int, int], found: dict[str, Any]) -> str | None:
    topic, partition, before = of
    topic_id = found["topic_id"]
    view = whole_view(client, "/v1/cluster/partitions", "partitions", topic=topic)
    told = {_node_of(each): each for each in view["nodes"]}
    copies = found["claimed_by_node"]
    if copies is not None and not told.get(copies, {}).get("answered"):
        why = told[copies]["text"] if copies in told else "it was removed from the list of nodes"
        return (
            f"node {copies}, which copies {topic}-{partition}, does not report the log start of "
            f"its broker: {why}{_REPEAT}"
        )
    for each in view["partitions"]:
        start = each["local_log_start_offset"]
        here = (each["partition"], each["topic_id"]) == (partition, topic_id)
        if here and start is not None and start < before:
            return (
                f"the broker's log of {topic}-{partition} starts at {start}, so it still serves "
                f"records to be erased: first delete the records below {before} there, with "
                f"kafka-delete-records{_REPEAT}. --tier-only erases only the tier's copy"
            )
    return None
