"""`strandline lag`, `sizes` and `running`: views of the whole cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.output import human_bytes, human_time, print_table, print_text
from strandline.cli.whole_cluster import PAGE_ITEMS, answer_of_all, whole_view


@asks_node
def lag_command(
    client: NodeClient,
    every: Annotated[
        bool, typer.Option("--all", help="Every partition that is behind, not the ten worst.")
    ] = False,
) -> Answer:
    """Show how far copying is behind on all nodes, and the partitions that are worst.

    Example: `strandline lag`
    """
    most = None if every else PAGE_ITEMS
    view = whole_view(client, "/v1/cluster/lag", "partitions", most=most)
    return answer_of_all(view, lambda: _print_lag(view, "partitions" if every else "worst"))


def _print_lag(view: dict[str, Any], shown: str) -> None:
    print_table(
        ["node", "partitions", "behind", "blocked", "segments", "size", "oldest", "gone"],
        [
            _lag_row(name, each)
            for name, each in [
                *((each["node"], each) for each in view["by_node"]),
                ("all", view["total"]),
            ]
        ],
    )
    if view[shown]:
        print_table(
            ["partition", "node", "segments", "size", "oldest", "gone", "why"],
            [
                (
                    f"{each['topic']}-{each['partition']}",
                    each["node"],
                    each["lag"]["segments"],
                    human_bytes(each["lag"]["size_bytes"]),
                    _seconds(each["lag"]),
                    each["gone_offsets"],
                    each["blocked"] or each["why_not_text"],
                )
                for each in view[shown]
            ],
        )
    else:
        print_text("nothing is behind")


def _lag_row(name: object, of: dict[str, Any]) -> tuple[object, ...]:
    return (
        name, of["partitions"], of["behind"], of["blocked"], of["segments"],
        human_bytes(of["size_bytes"]), _seconds(of), of["gone_offsets"],
    )  # fmt: skip


def _seconds(lag: dict[str, Any]) -> str:
    return f"{lag['age_ms'] / 1000:.0f} s" if lag["segments"] else "-"


@asks_node
def sizes_command(client: NodeClient) -> Answer:
    """Show bytes in the tier and on the nodes' machines, by topic.

    Example: `strandline sizes`
    """
    view = whole_view(client, "/v1/cluster/sizes", "topics")
    return answer_of_all(view, lambda: _print_sizes(view))


def _print_sizes(view: dict[str, Any]) -> None:
    print_table(
        ["topic", "partitions", "segments", "in the tier", "trash", "replicas", "on disks"],
        [
            (
                each["topic"],
                each["partitions"],
                each["remote_segments"],
                human_bytes(each["remote_bytes"]),
                human_bytes(each["trash_bytes"]),
                each["replicas"],
                human_bytes(each["local_bytes"]),
            )
            for each in view["topics"]
        ],
        names_first=True,
    )
    print_text(f"in the tier: {human_bytes(view['tier']['size_bytes'])}")
    for each in view["local"]:
        print_text(
            f"on node {each['node']}'s machine: {human_bytes(each['local_bytes'])} in "
            f"{each['replicas']} replicas"
        )


@asks_node
def running_command(client: NodeClient) -> Answer:
    """Show copies under way and deletions to come, on all nodes.

    Example: `strandline running`
    """
    view = whole_view(client, "/v1/cluster/running", "running")
    return answer_of_all(view, lambda: _print_running(view))


def _print_running(view: dict[str, Any]) -> None:
    total = view["total"]
    print_text(
        f"{total['copies']} copies, {human_bytes(total['bytes_done'])} of "
        f"{human_bytes(total['bytes_total'])}; {total['deletions']} deletions"
    )
    if view["running"]:
        print_table(
            ["node", "what", "partition", "segment", "offsets", "done", "due", "why"],
            [_running_row(each) for each in view["running"]],
        )


def _running_row(each: dict[str, Any]) -> tuple[object, ...]:
    offsets = done = None
    if each["start_offset"] is not None and each["end_offset"] is not None:
        offsets = f"{each['start_offset']}-{each['end_offset']}"
    if each["bytes_total"] is not None:
        done = f"{human_bytes(each['bytes_done'])} of {human_bytes(each['bytes_total'])}"
    due = None if each["due_ms"] is None else human_time(each["due_ms"])
    name = f"{each['topic']}-{each['partition']}"
    return each["node"], each["kind"], name, each["segment_id"], offsets, done, due, each["why"]
