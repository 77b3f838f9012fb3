"""`strandline demo`: the main job on real captured segments, with everything embedded."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import httpx
import typer

from api.metrics import NodeMetrics
from kafka_formats.errors import InternalError, RetryLater
from rlm.copy_plan import WhyNot
from rlm.events import CopyEvent
from rlm.partition_status import PartitionStatus
from strandline import ambient
from strandline.cli.copy_progress import CopyProgressView
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_bytes, print_table
from strandline.demo_feed import DemoFeed
from strandline.formatting import format_for
from strandline.node import Node
from strandline.serving import serving
from strandline.settings import Settings
from strandline.settings_loading import load_settings

CAPTURED = Path(__file__).resolve().parents[2] / "tests" / "data" / "kafka-4.3.0" / "log-dir"
TOPICS = ("orders", "payments")
BUCKET = "strandline-demo"
STEP_PAUSE_S = 0.4
STORE_START_DEADLINE_S = 60.0
COPY_DEADLINE_S = 120.0

_CONFIG = """\
[node]
data_dir = "{home}/node"

[kafka]
log_dirs = ["{home}/broker"]

[topics]
include = ["*"]

[stores.main]
kind = "s3"
bucket = "{bucket}"
endpoint_url = "{endpoint}"
credentials_file = "{home}/credentials"
addressing_style = "path"

[copier]
interval_s = 0.2

[http]
port = {port}
anonymous_role = "read"
"""


def demo_command(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the node running at the end.")
    ] = False,
    log_dir: Annotated[
        Path, typer.Option(help="A captured log directory to play; read only.")
    ] = CAPTURED,
) -> int:
    """Copy real captured Kafka segments to an embedded S3 store, and ask for them back.

    Example: `strandline demo --keep`
    """
    home = Path(tempfile.mkdtemp(prefix="strandline-demo-"))
    try:
        asyncio.run(_demo(home, log_dir, keep=keep))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return ExitCode.OK


async def _demo(home: Path, captured: Path, *, keep: bool) -> None:
    feed = DemoFeed(captured, home / "broker", TOPICS)
    async with _embedded_s3() as endpoint:
        settings = _settings(home, endpoint)
        format_for(settings)
        console.print(f"S3 store (moto) at {endpoint}, bucket {BUCKET}")
        console.print(f"watching {home}/broker while segments are sealed there\n")
        with CopyProgressView(console) as view:
            metrics = NodeMetrics()

            def on_event(event: CopyEvent) -> None:
                metrics.copy.on_event(event)
                view.on_event(event)

            node = await Node.open(
                settings, on_event=on_event, on_store_call=metrics.store.on_store_call
            )
            async with _closing(node), serving(node, metrics) as http:
                await node.remote_log.start()
                await _play(feed, node)
                await _report(node, http.url, home / "broker", view, keep=keep)
                if keep:
                    await _until_interrupted()


async def _play(feed: DemoFeed, node: Node) -> None:
    for step in range(feed.steps):
        feed.play(step)
        await ambient.sleep(STEP_PAUSE_S)
    try:
        async with asyncio.timeout(COPY_DEADLINE_S):
            while not _all_copied(node, feed):
                await ambient.sleep(0.1)
    except TimeoutError:
        waits = "; ".join(
            f"{each.partition.topic}-{each.partition.partition}: {each.why_not_text}"
            for each in node.remote_log.statuses()
        )
        raise InternalError(f"not all copied after {COPY_DEADLINE_S:.0f} s: {waits}") from None


def _all_copied(node: Node, feed: DemoFeed) -> bool:
    """Whether only the active segment, or an open transaction, is left."""
    statuses = node.remote_log.statuses()
    return len(statuses) == feed.partition_count and all(
        each.active_base_offset == feed.active_base(each.partition)
        and each.why_not_copying in (WhyNot.NO_SEALED_SEGMENT, WhyNot.WAITING_FOR_LSO)
        for each in statuses
    )


async def _report(
    node: Node, url: str, log_dir: Path, view: CopyProgressView, *, keep: bool
) -> None:
    rows = []
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        for status in node.remote_log.statuses():
            topic, partition = status.partition.topic, status.partition.partition
            verdict = await _read_back(http, log_dir, topic, partition)
            rows.append(
                (
                    topic,
                    partition,
                    status.remote_segments,
                    human_bytes(status.remote_bytes),
                    status.log_start_offset,
                    status.highest_copied_offset,
                    verdict,
                    (status.why_not_copying or "").replace("_", " "),
                )
            )
    console.print()
    print_table(
        ["topic", "p", "segments", "size", "log start", "copied to", "read back", "then"],
        rows,
    )
    console.print(
        f"\n{view.segments_copied} segments, {human_bytes(view.bytes_copied)} copied; metadata "
        f"offset {node.metadata.applied_offset}\n"
    )
    hint = "Ask the node:" if keep else "With `make demo KEEP=1` the node stays up for these:"
    console.print(hint, style="bold")
    for line in curl_lines(url, node.remote_log.statuses()):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def curl_lines(url: str, statuses: Sequence[PartitionStatus]) -> list[str]:
    """Questions to paste, about the first partition of `orders`; each one has an answer."""
    orders = next(
        each
        for each in statuses
        if (each.partition.topic, each.partition.partition) == ("orders", 0)
    )
    base = f"{url}/v1/topics/orders/partitions/0"
    follower = (
        f"fetch_offset=0&leader_epoch={orders.leader_epoch}&leader_local_log_start_offset=100"
    )
    return [
        f"curl -s {base}/segments",
        f"curl -s '{base}/offsets?timestamp=latest-tiered'",
        f"curl -s {base}/leader-transition",
        f"curl -s '{base}/follower-fetch?{follower}'",
        f"curl -s '{base}/records?offset=0' -H 'Accept: application/x-ndjson' | head -3",
        f"curl -s {url}/metrics | grep strandline",
    ]


async def _read_back(http: httpx.AsyncClient, log_dir: Path, topic: str, partition: int) -> str:
    """Compare the tier's bytes with the segment files they were copied from."""
    base = f"/v1/topics/{topic}/partitions/{partition}"
    segments = (await _json(http, f"{base}/segments"))["segments"]
    compared = 0
    for segment in segments:
        answer = await http.get(f"{base}/segments/{segment['segment_id']}/log")
        answer.raise_for_status()
        local = log_dir / f"{topic}-{partition}" / f"{segment['start_offset']:020d}.log"
        if answer.content != await asyncio.to_thread(local.read_bytes):
            raise InternalError(f"{local} differs from what the tier returns")
        compared += len(answer.content)
    assert compared == sum(int(str(segment["size_bytes"])) for segment in segments)
    return "identical"


async def _json(http: httpx.AsyncClient, path: str) -> dict[str, list[dict[str, object]]]:
    answer = await http.get(path)
    answer.raise_for_status()
    body: dict[str, list[dict[str, object]]] = answer.json()
    return body


def _settings(home: Path, endpoint: str) -> Settings:
    # moto takes any credentials; these are no secret.
    (home / "credentials").write_text(
        "[default]\naws_access_key_id = demo\naws_secret_access_key = demo\n"
    )
    config = home / "strandline.toml"
    config.write_text(
        _CONFIG.format(home=home, bucket=BUCKET, endpoint=endpoint, port=_free_port())
    )
    return load_settings(config, {}).settings


@asynccontextmanager
async def _embedded_s3() -> AsyncIterator[str]:
    """moto's S3 server in a process of its own, with the bucket made."""
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port),
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await _make_bucket(endpoint, process)
        yield endpoint
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _make_bucket(endpoint: str, process: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient() as http, asyncio.timeout(STORE_START_DEADLINE_S):
        while True:
            if process.returncode is not None:
                raise RetryLater(
                    "moto's S3 server did not start: install the demo extra (`make demo` does)"
                )
            try:
                (await http.put(f"{endpoint}/{BUCKET}")).raise_for_status()
                return
            except httpx.TransportError:
                await ambient.sleep(0.1)


@asynccontextmanager
async def _closing(node: Node) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await node.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _until_interrupted() -> None:
    console.print("\nrunning until Ctrl-C", style="dim")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
