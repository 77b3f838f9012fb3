"""The end of the demo: segments read back, a table of partitions and nodes, and commands to try."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_formats.errors import InternalError
from strandline.cli.output import console, human_bytes, print_table
from strandline.demo.nodes import COPIER_ID, DemoNode, DemoNodes

FINISHED = "COPY_SEGMENT_FINISHED"
DIGEST_SHOWN = 12

Partition = tuple[str, int]


async def partition_views(node: DemoNode, partitions: Sequence[Partition]) -> list[dict[str, Any]]:
    """The state of each partition, as `node` answers it."""
    return [await node.get(_path(topic, number)) for topic, number in partitions]


async def finished_segments(
    node: DemoNode, partitions: Sequence[Partition]
) -> dict[Partition, list[dict[str, Any]]]:
    """The rows of all finished segments, by partition."""
    found = {}
    for topic, number in partitions:
        rows = (await node.get(f"{_path(topic, number)}/segments?limit=1000"))["segments"]
        found[topic, number] = [row for row in rows if row["state"] == FINISHED]
    return found


async def read_back(
    node: DemoNode, log_dir: Path, segments: dict[Partition, list[dict[str, Any]]]
) -> int:
    """Compare every finished segment in the tier with its source file; return the bytes compared.
    InternalError: a segment differs.
    """
    compared = 0
    for (topic, number), rows in segments.items():
        for row in rows:
            tiered = await node.body(f"{_path(topic, number)}/segments/{row['segment_id']}/log")
            local = log_dir / f"{topic}-{number}" / f"{row['start_offset']:020d}.log"
            if tiered != await asyncio.to_thread(local.read_bytes):
                raise InternalError(f"{local} differs from what the tier returns")
            compared += len(tiered)
    return compared


def print_partitions(views: Sequence[dict[str, Any]]) -> None:
    """Print a row for each partition, whose bytes were compared before."""
    print_table(
        ["topic", "p", "segments", "size", "log start", "copied to", "read back", "then"],
        [
            (
                view["topic"],
                view["partition"],
                view["remote_segments"],
                human_bytes(view["remote_bytes"]),
                view["log_start_offset"],
                view["highest_copied_offset"],
                "identical",
                (view["why_not_copying"] or "").replace("_", " "),
            )
            for view in views
        ],
    )


def print_nodes(nodes: DemoNodes, quorums: Sequence[dict[str, Any]], killed_id: int) -> None:
    """Print a row for each node, with its digest of the metadata."""
    did = {COPIER_ID: "copied", killed_id: "was killed and restarted"}
    print_table(
        ["node", "what it did", "quorum", "epoch", "applied", "digest of its state", "pid"],
        [
            (
                quorum["node_id"],
                did.get(quorum["node_id"], "kept the metadata"),
                quorum["state"],
                quorum["leader_epoch"],
                quorum["applied_offset"],
                quorum["digest"][:DIGEST_SHOWN],
                nodes[quorum["node_id"]].process.pid,
            )
            for quorum in quorums
        ],
    )


def curl_lines(copier: DemoNode, leader: DemoNode, views: Sequence[dict[str, Any]]) -> list[str]:
    """Commands to paste, about the first partition of `orders`."""
    orders = next(each for each in views if (each["topic"], each["partition"]) == ("orders", 0))
    base = f"{copier.url}{_path('orders', 0)}"
    follower = (
        f"fetch_offset=0&leader_epoch={orders['leader_epoch']}&leader_local_log_start_offset=100"
    )
    return [
        f"curl -s {leader.url}/v1/quorum",
        f"curl -s {base}/segments",
        f"curl -s '{base}/offsets?timestamp=latest-tiered'",
        f"curl -s {base}/leader-transition",
        f"curl -s '{base}/follower-fetch?{follower}'",
        f"curl -s '{base}/records?offset=0' -H 'Accept: application/x-ndjson' | head -3",
        f"curl -s {copier.url}/metrics | grep strandline",
    ]


def print_questions(lines: Sequence[str], *, keep: bool) -> None:
    """Print the commands; without `keep` the nodes have stopped, and the hint says how to keep
    them.
    """
    hint = "Ask the nodes:" if keep else "With `make demo KEEP=1` the nodes stay up for these:"
    console.print(f"\n{hint}", style="bold")
    for line in lines:
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _path(topic: str, partition: int) -> str:
    return f"/v1/topics/{topic}/partitions/{partition}"
