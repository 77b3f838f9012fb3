"""`strandline demo`: copies captured Kafka segments; half-way the quorum's leader is killed."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from kafka_formats.errors import InternalError
from rlm.control.why_not import WhyNot
from strandline.cli.demo_report import (
    curl_lines,
    finished_segments,
    partition_views,
    print_nodes,
    print_partitions,
    print_questions,
    read_back,
)
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes
from strandline.demo.feed import DemoFeed
from strandline.demo.nodes import COPIER_ID, NODE_IDS, DemoNodes, format_nodes, free_ports
from strandline.demo.process import wait_until
from strandline.demo.store import BUCKET, embedded_s3
from strandline.node import ambient

CAPTURED = Path(__file__).resolve().parents[2] / "tests" / "data" / "kafka-4.3.0" / "log-dir"
TOPICS = ("orders", "payments")
STEP_PAUSE_S = 0.4
REQUEST_DEADLINE_S = 30.0
COPY_DEADLINE_S = 120.0
FAILOVER_DEADLINE_S = 30.0
CATCH_UP_DEADLINE_S = 30.0
NOTHING_LEFT = (WhyNot.NO_SEALED_SEGMENT, WhyNot.WAITING_FOR_LSO)


def demo_command(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the nodes running at the end.")
    ] = False,
    log_dir: Annotated[
        Path, typer.Option(help="A captured log directory to replay; read only.")
    ] = CAPTURED,
) -> int:
    """Copy real Kafka segments to an embedded S3 store, on three nodes whose leader is killed.

    Example: `strandline demo --keep`
    """
    home = Path(tempfile.mkdtemp(prefix="strandline-demo-"))
    try:
        asyncio.run(_demo(home, log_dir, keep=keep))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return ExitCode.OK


async def _demo(home: Path, captured: Path, *, keep: bool) -> None:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    broker = home / "broker"
    feed = DemoFeed(captured, broker, TOPICS)
    store_port, *ports = free_ports(1 + 2 * len(NODE_IDS))
    async with (
        embedded_s3(home, store_port) as endpoint,
        httpx.AsyncClient(timeout=REQUEST_DEADLINE_S, trust_env=False) as http,
    ):
        with format_nodes(home, broker, endpoint, ports, http) as nodes:
            console.print(f"S3 store (moto) at {endpoint}, bucket {BUCKET}; three nodes start")
            await _start(nodes)
            lost = await _copy(feed, nodes)
            await _come_back(nodes, lost)
            await _report(feed, nodes, lost, broker, keep=keep)
            if keep:
                await _until_interrupted()


async def _start(nodes: DemoNodes) -> None:
    """Start all nodes at once: the first election of a new quorum needs them all."""
    await nodes.start(*NODE_IDS)
    leader = await _leader_that_may_die(nodes)
    console.print(
        f"they keep the metadata as one quorum, led by node {leader['node_id']}; node "
        f"{COPIER_ID} watches a broker's log directory and copies\n"
    )


async def _leader_that_may_die(nodes: DemoNodes) -> dict[str, Any]:
    """The quorum as its leader sees it. If the copier leads, the leadership is moved first, so that
    copying goes on when the leader is killed.
    """
    leader = await nodes.leader()
    if leader["node_id"] == COPIER_ID:
        nodes[COPIER_ID].process.stop()  # hands over
        leader = await nodes.leader()
        await nodes.start(COPIER_ID)
    return leader


@dataclass(frozen=True, slots=True)
class LostLeader:
    """The leader that was killed, and the segments that were copied before that."""

    node_id: int
    acknowledged: frozenset[str]


async def _copy(feed: DemoFeed, nodes: DemoNodes) -> LostLeader:
    """Let the broker seal segment after segment, and kill the leader half-way."""
    lost: LostLeader | None = None
    columns = (TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TextColumn("segments"))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("copying", total=feed.sealed_segments)

        async def copied() -> int:
            totals = (await nodes[COPIER_ID].get("/v1/cluster"))["totals"]
            count: int = totals["copy_segment_finished"]
            progress.update(bar, completed=count)
            return count

        async def everything() -> bool | None:
            await copied()
            return await _all_copied(feed, nodes)

        for step in range(feed.steps):
            if step == feed.steps // 2:
                lost = await _lose_leader(feed, nodes, step, copied)
            else:
                feed.play(step)
            await ambient.sleep(STEP_PAUSE_S)
            await copied()
        await wait_until(
            everything,
            "all segments to be copied",
            processes=nodes.processes,
            deadline_s=COPY_DEADLINE_S,
        )
    assert lost is not None, "the captured directory has segments to play"
    return lost


async def _lose_leader(
    feed: DemoFeed, nodes: DemoNodes, step: int, copied: Callable[[], Awaitable[int]]
) -> LostLeader:
    """Play a step, and kill the leader once one of its segments is copied and more are under way.
    Returns after a commit under a new leader.
    """
    before = await _leader_that_may_die(nodes)  # the leader may have changed on a busy machine
    rows = await finished_segments(nodes[COPIER_ID], feed.partitions)
    acknowledged = frozenset(row["segment_id"] for each in rows.values() for row in each)
    count = await copied()

    async def one_more() -> int | None:
        now = await copied()
        return now if now > count else None

    feed.play(step)
    count = await wait_until(
        one_more, "another copy", processes=nodes.processes, deadline_s=COPY_DEADLINE_S
    )
    began = ambient.monotonic()
    nodes[before["node_id"]].process.kill()
    console.print(
        f"[red]kill -9[/red] of node {before['node_id']}, the leader, with {count} of "
        f"{feed.sealed_segments} segments copied"
    )
    after = await _next_leader(nodes, before)
    console.print(
        f"[green]node {after['leader_id']} leads[/green] from epoch {after['leader_epoch']} on: "
        f"{ambient.monotonic() - began:.1f} s without a commit; the copy goes on by itself"
    )
    return LostLeader(before["node_id"], acknowledged)


async def _next_leader(nodes: DemoNodes, before: dict[str, Any]) -> dict[str, Any]:
    """The quorum as the copier sees it, once it has seen a commit in a later epoch."""
    committed: int = before["high_watermark"]

    async def commits_again() -> dict[str, Any] | None:
        nonlocal committed
        quorum = await nodes[COPIER_ID].quorum()
        if quorum is None:
            return None
        if quorum["leader_epoch"] == before["leader_epoch"]:
            committed = max(committed, quorum["high_watermark"])
            return None
        return quorum if quorum["high_watermark"] > committed else None

    return await wait_until(
        commits_again,
        "a commit under a new leader",
        processes=nodes.processes,
        deadline_s=FAILOVER_DEADLINE_S,
    )


async def _all_copied(feed: DemoFeed, nodes: DemoNodes) -> bool | None:
    """True once only active segments and open transactions are left to copy; else None."""
    views = await partition_views(nodes[COPIER_ID], feed.partitions)
    done = all(
        view["active_base_offset"] == feed.active_base(view["topic"], view["partition"])
        and view["why_not_copying"] in NOTHING_LEFT
        for view in views
    )
    return True if done else None


async def _come_back(nodes: DemoNodes, lost: LostLeader) -> None:
    await nodes.start(lost.node_id)
    applied = await wait_until(
        lambda: _agreed(nodes),
        "the same state on all nodes",
        processes=nodes.processes,
        deadline_s=CATCH_UP_DEADLINE_S,
    )
    console.print(
        f"node {lost.node_id} was started again and has caught up: metadata offset {applied}, "
        "the same state on all three"
    )


async def _agreed(nodes: DemoNodes) -> int | None:
    """The offset that all nodes have applied with the same digest; None until they agree."""
    quorums = [await node.quorum() for node in nodes]
    states = {(each["applied_offset"], each["digest"]) for each in quorums if each is not None}
    return states.pop()[0] if None not in quorums and len(states) == 1 else None


async def _report(
    feed: DemoFeed, nodes: DemoNodes, lost: LostLeader, log_dir: Path, *, keep: bool
) -> None:
    """Print the result as the killed node answers it; its answers must equal those of the
    copier.
    """
    back, copier = nodes[lost.node_id], nodes[COPIER_ID]
    segments = await finished_segments(back, feed.partitions)
    found = {row["segment_id"] for rows in segments.values() for row in rows}
    if not lost.acknowledged <= found or segments != await finished_segments(
        copier, feed.partitions
    ):
        raise InternalError(
            "segments that were acknowledged before the kill are missing: this is a bug, please "
            "report it"
        )
    size_bytes = await read_back(back, log_dir, segments)
    views = await partition_views(copier, feed.partitions)
    quorums = [quorum for node in nodes if (quorum := await node.quorum()) is not None]
    leader_id = next(each["node_id"] for each in quorums if each["state"] == "leader")
    console.print()
    print_partitions(views)
    console.print()
    print_nodes(nodes, quorums, lost.node_id)
    console.print(
        f"\n{len(found)} segments, {human_bytes(size_bytes)} copied and read back through node "
        f"{lost.node_id}: nothing is lost"
    )
    print_questions(curl_lines(copier, nodes[leader_id], views), keep=keep)


async def _until_interrupted() -> None:
    console.print("\nrunning until Ctrl-C; kill a node and see what the others say", style="dim")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
