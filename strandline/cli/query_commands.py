"""Commands that only read: status, partitions, offsets, records and the like."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from json import loads
from typing import Annotated, Any

import typer

from rlm.control.reasons import AS_IT_SHOULD_BE, says
from rlm.control.why_not import WhyNot
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import DEFAULT_URL, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import (
    console,
    errors,
    human_bytes,
    print_fields,
    print_line,
    print_table,
    print_text,
    shortened,
)
from strandline.cli.query_answers import (
    PartitionArgument,
    TopicArgument,
    partition_path,
    print_answer,
    state_name,
    topic_path,
)
from strandline.cli.whole_cluster import AllNodesOption, answer_of_all


@asks_node
def status_command(client: NodeClient, all_nodes: AllNodesOption = False) -> Answer:
    """Show the node's identity, the totals of the tier, and the node's problems.

    Example: `strandline status`; `strandline status --all-nodes` has the problems of all
    """
    cluster, quorum = client.get("/v1/cluster"), client.get("/v1/quorum")
    document = {"cluster": cluster, "quorum": quorum}
    if not all_nodes:
        return Answer(document, lambda: _print_status(cluster, quorum, _problem_lines(cluster)))
    view = client.get("/v1/cluster/problems")
    lines = _problem_lines_of_all(view)
    return answer_of_all(
        view, lambda: _print_status(cluster, quorum, lines), document | {"all_nodes": view}
    )


def _print_status(cluster: dict[str, Any], quorum: dict[str, Any], problems: Sequence[str]) -> None:
    totals = cluster["totals"]
    print_fields(
        {
            "node": cluster["node_id"],
            "version": cluster["version"],
            "cluster": cluster["cluster_id"],
            "Kafka cluster": cluster["kafka_cluster_id"],
            "metadata leader": quorum["leader_id"],
            "metadata epoch": quorum["leader_epoch"],
            "metadata offset": quorum["applied_offset"],
            "partitions": totals["partitions"],
            "tiered bytes": human_bytes(totals["size_bytes"]),
        }
        | {
            f"segments, {state_name(name)}": totals[name]
            for name in ("copy_segment_started", "copy_segment_finished", "delete_segment_started")
        }
    )
    for line in problems:
        print_text(line)


def _problem_lines(told: dict[str, Any]) -> list[str]:
    return [*map(_problem_text, told["problems"]), *map(_place_text, told["log_dir_problems"])]


def _problem_lines_of_all(view: dict[str, Any]) -> list[str]:
    """Each problem once, with the nodes that report it."""
    told = (*view["problems"], *view["log_dir_problems"])
    nodes: dict[str, list[str]] = {}
    for each, line in zip(told, _problem_lines(view), strict=True):
        nodes.setdefault(line, []).append(str(each["node"]))
    return [
        f"node{'s' if len(who) > 1 else ''} {', '.join(who)}: {line}" for line, who in nodes.items()
    ]


def _place_text(problem: dict[str, Any]) -> str:
    return f"problem at {problem['path']}: {problem['text']}"


def _problem_text(problem: dict[str, Any]) -> str:
    if problem["about"] == "paused":
        return f"paused: {problem['text']}"
    about = problem["about"].replace("_", " ")
    name = "" if problem["name"] is None else f" {problem['name']}"
    return f"problem with {about}{name}: {problem['text']}"


@asks_node
def partitions_command(
    client: NodeClient,
    topic: Annotated[str | None, typer.Argument(help="Topic name; default: all topics.")] = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only partitions that wait, each with its reason.")
    ] = False,
) -> Answer:
    """List partitions: how far each is copied, how much waits, and why.

    Example: `strandline partitions orders`, short for `strandline partitions list orders`;
    `strandline partitions --waiting`
    """
    topics = [topic] if topic else [t["topic"] for t in client.pages("/v1/topics", "topics")]
    found: list[dict[str, Any]] = [
        {"topic": name} | each
        for name in topics
        for each in client.pages(topic_path(name), "partition_list")
    ]
    if waiting:
        found = [each for each in found if _waits(each)]
    return Answer(found, lambda: (print_waiting if waiting else _print_partitions)(found))


def _print_partitions(found: list[dict[str, Any]]) -> None:
    print_table(
        ["topic", "p", "role", "copied to", "size", "lag", "state"],
        [
            (
                p["topic"],
                p["partition"],
                p["role"].replace("_", " "),
                p["highest_copied_offset"],
                human_bytes(p["remote_bytes"]),
                _lag_text(p["lag"]),
                _state(p),
            )
            for p in found
        ],
        names_first=True,
        spare="size",
    )


def _waits(partition: dict[str, Any]) -> bool:
    why = partition["why_not_copying"]
    stands = why is not None and why not in AS_IT_SHOULD_BE
    return partition["blocked"] is not None or stands or _tries_again(partition)


def _tries_again(partition: dict[str, Any]) -> bool:
    """True while a copy follows a failed one, or waits for its turn: with a store that hangs this
    may take long.
    """
    again = partition["why_not_copying"] in (None, WhyNot.WAITING_FOR_SLOT)
    return again and partition["last_error"] is not None


def print_waiting(found: list[dict[str, Any]]) -> None:
    """One line each, on a terminal cut at its edge: `--json` has the whole names and texts."""
    for each in found:
        text = each["blocked"] or each["why_not_text"]
        if each["blocked"] is None and _tries_again(each):
            text = each["last_error"]["text"]
        name = f"{shortened(each['topic'], console.width // 3)}-{each['partition']}"
        print_line(f"{name}  {_lag_text(each['lag'])}  {_state(each)}: {text}")
    if not found:
        print_text("nothing waits")


def _state(partition: dict[str, Any]) -> str:
    if partition["blocked"] is not None:
        return says(WhyNot.BLOCKED)
    why: str | None = partition["why_not_copying"]
    if _tries_again(partition):
        return "copying again"
    return "copying" if why is None else says(why)


def _lag_text(lag: dict[str, int] | None) -> str:
    """The bytes that wait, and the age of the oldest of them."""
    if lag is None:
        return "-"
    if lag["segments"] == 0:
        return "0"
    return f"{human_bytes(lag['size_bytes'])}, {lag['age_ms'] / 1000:.0f} s"


@asks_node
def offsets_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    timestamp: Annotated[
        str | None,
        typer.Option(help="A name such as `latest-tiered`, or a time in ms; default: all names."),
    ] = None,
) -> Answer:
    """Look offsets up as Kafka's ListOffsets: earliest, latest, tiered, or by time.

    Example: `strandline offsets orders 0 --timestamp 1767225600000`
    """
    specials = ("earliest", "earliest-local", "latest-tiered", "earliest-pending-upload", "latest")
    path = f"{partition_path(topic, partition)}/offsets"
    asked: Sequence[str] = specials if timestamp is None else (timestamp,)
    answers = [client.get(path, timestamp=each) for each in asked]
    rows = [(each["timestamp"], each["offset"], each["leader_epoch"]) for each in answers]
    return Answer(answers, lambda: print_table(["asked", "offset", "leader epoch"], rows))


@asks_node
def leader_transition_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    leader_epoch: Annotated[
        int | None, typer.Option(min=0, help="Epoch of the new leader; default: the newest known.")
    ] = None,
    log_end_offset: Annotated[
        int | None, typer.Option(min=0, help="Log end offset of the new leader.")
    ] = None,
) -> Answer:
    """Show the offset at which a new leader would continue copying; changes nothing.

    Example: `strandline leader-transition orders 0`
    """
    answer = client.get(
        f"{partition_path(topic, partition)}/leader-transition",
        leader_epoch=leader_epoch,
        log_end_offset=log_end_offset,
    )
    return Answer(answer, lambda: print_answer(answer))


@asks_node
def follower_fetch_command(
    client: NodeClient,
    topic: TopicArgument,
    partition: PartitionArgument,
    fetch_offset: Annotated[int, typer.Option(min=0, help="Offset that the follower would fetch.")],
    leader_epoch: Annotated[int, typer.Option(min=0, help="Leader epoch that the follower knows.")],
    leader_local_log_start: Annotated[
        int | None,
        typer.Option(
            min=0, help="Local log start offset of the leader; default: the node asks its broker."
        ),
    ] = None,
    from_last_tiered: Annotated[
        bool,
        typer.Option(
            "--from-last-tiered",
            help="KIP-1023, for an empty follower: begin after the last copied offset.",
        ),
    ] = False,
) -> Answer:
    """Show the state that a follower needs to rebuild its log from the tier.

    Example: `strandline follower-fetch orders 0 --fetch-offset 0 --leader-epoch 7`
    """
    answer = client.get(
        f"{partition_path(topic, partition)}/follower-fetch",
        fetch_offset=fetch_offset,
        leader_epoch=leader_epoch,
        leader_local_log_start_offset=leader_local_log_start,
        from_last_tiered=from_last_tiered or None,
    )
    return Answer(answer, lambda: print_answer(answer))


def records_command(
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: Annotated[int, typer.Option(min=0, help="Offset to begin at.")] = 0,
    max_bytes: Annotated[
        int, typer.Option(min=1, max=2**30, help="Stop after about this many stored bytes.")
    ] = 1_048_576,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out aborted transactions.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write record batches as stored, instead of JSON lines.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
) -> int:
    """Read records back from the tier: one JSON object a line, or the stored batches.

    The next offset, and records that were left out, are reported on stderr.

    Example: `strandline records orders 0 --offset 1200 --committed | head`
    """
    with NodeClient(url, token_file) as client:
        pieces = client.stream(
            f"{partition_path(topic, partition)}/records",
            accept="application/octet-stream" if raw else "application/x-ndjson",
            offset=offset,
            max_bytes=max_bytes,
            isolation="read_committed" if committed else "read_uncommitted",
            end=None if raw else "true",
        )
        last_line = b""
        for piece in pieces:
            if not raw:
                piece = last_line + piece
                whole = piece.rfind(b"\n", 0, -1) + 1
                piece, last_line = piece[:whole], piece[whole:]
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    if last_line:
        for told in records_end_texts(loads(last_line)["end"]):
            errors.print(told, markup=False, soft_wrap=True)
    return ExitCode.OK


def records_end_texts(end: dict[str, Any]) -> Iterator[str]:
    """The remarks on a page of records, for people."""
    for lost in end["lost"]:
        yield f"offsets {lost['start']} to {lost['end']} are lost: no segment has them"
    if undecided := end["undecided_records"]:
        yield (
            f"{undecided} records were left out: the markers of their transactions are lost, so it "
            "is unknown whether they were committed"
        )
    if end["at_end"]:
        yield f"nothing more is tiered for this reader; the next offset is {end['next_offset']}"
    else:
        yield f"the next offset is {end['next_offset']}: go on with --offset {end['next_offset']}"
