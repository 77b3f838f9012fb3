"""`strandline node`: runs a node until a signal stops it, or until one of its parts fails."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal

from api.metrics.metrics import NodeMetrics
from kafka_formats.errors import InternalError, InvalidRequest
from rlm.control.log_levels import LogLevels, set_levels
from rlm.control.run_events import (
    ClaimLost,
    CopyEvent,
    HoldReleased,
    LostRangeRecorded,
    PartitionClaimed,
    SegmentCopied,
    SegmentDeleted,
    SegmentFailed,
)
from rsm_backends.key_rounds import look_again
from strandline.node import event_loop
from strandline.node.event_loop import leave_out_of_collections
from strandline.node.node import Node
from strandline.node.open_files import files_limit, within_open_files
from strandline.node.reading import ReadReplica
from strandline.node.serving import HttpInterface, serving
from strandline.settings.log_lines import NODE_TEXT, LogOutput, node_id_in, start_logging
from strandline.settings.settings import LOOPBACK_HOSTS, HttpSettings, Settings

logger = logging.getLogger("strandline")
tier_logger = logging.getLogger("rlm.control.run_events")

NOTHING_TO_READ = (
    "no file was read again: neither http.tokens_file nor a tls_certificate_file of http, read or "
    "quorum is set"
)


def run_node(settings: Settings) -> None:
    """Run a node in this process until SIGTERM or SIGINT; raises the error of a part that
    failed.
    """
    log = start_logging(settings.log.format, node_id_in(settings.node.data_dir), text=NODE_TEXT)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # `_run` logs that the node serves
    faulthandler.enable()  # else a crash in native code would end the process without a message
    event_loop.run(_run(within_open_files(settings, files_limit()), log))


async def _run(settings: Settings, log: LogOutput) -> None:
    metrics, replica = NodeMetrics(), ReadReplica()
    levels = LogLevels(settings.log.levels.by_area())
    levels.tell(set_levels)

    def on_event(event: CopyEvent) -> None:
        metrics.copy.on_event(event)
        metrics.hold.on_event(event)
        metrics.repair.on_event(event)
        log_event(event)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Without a handler, SIGHUP ends the process.
    loop.add_signal_handler(signal.SIGHUP, _nothing_to_reload)
    node = await Node.open(
        settings,
        on_event=on_event,
        on_store_call=metrics.store.on_store_call,
        log_levels=levels,
        more=(log.problems, replica.problems),
    )
    if node.hold is not None:
        metrics.hold.read_from(node.hold.usage)
    # Before it listens, so that the log has the reason before the first request is refused.
    _warn_of_what_is_seldom_meant(settings)
    try:
        async with serving(node, metrics) as http, replica.serving(node, metrics.read):
            loop.add_signal_handler(signal.SIGHUP, _reload, http, replica, node)
            leave_out_of_collections()
            if await _started(node, stop):
                node.snapshots.start()
                logger.info(
                    "node %d of cluster %s serves %s",
                    node.directory.node_id,
                    node.directory.cluster_id,
                    http.url,
                )
                await _until_stopped(node, stop)
    finally:
        await node.close()
    logger.info("stopped")


def _warn_of_what_is_seldom_meant(settings: Settings) -> None:
    """Warn of settings that are safe but seldom meant."""
    if not settings.kafka.log_dirs and settings.kafka.broker:
        logger.info(
            "kafka.log_dirs is empty: this node copies only the segments that its broker's plug-in "
            "sends"
        )
    elif not settings.kafka.log_dirs:
        logger.warning(
            "kafka.log_dirs is empty: this node keeps the metadata and answers requests, but "
            "copies no segments"
        )
    _warn_of_access(settings.http)


def _warn_of_access(http: HttpSettings) -> None:
    if http.anonymous_role == "none" and http.tokens_file is None:
        logger.warning(
            "all HTTP requests but health checks are refused: set http.tokens_file, or (on "
            'loopback) http.anonymous_role = "read"'
        )
    if http.host not in LOOPBACK_HOSTS and http.tls_certificate_file is None:
        logger.warning(
            "tokens and records are sent unencrypted, since HTTP on %s has no TLS: set "
            "http.tls_certificate_file and http.tls_key_file",
            http.host,
        )


async def _started(node: Node, stop: asyncio.Event) -> bool:
    """Start the remote log manager; False if the node was stopped meanwhile. With a store that
    hangs the start takes a minute, and a service manager would kill a node that did not stop before
    that.
    """
    starting = asyncio.ensure_future(node.remote_log.start())
    ending = asyncio.ensure_future(_until_stopped(node, stop))
    await asyncio.wait({starting, ending}, return_when=asyncio.FIRST_COMPLETED)
    is_started = starting.done()
    (ending if is_started else starting).cancel()
    await asyncio.wait({starting, ending})
    await (starting if is_started else ending)
    return is_started


async def _until_stopped(node: Node, stop: asyncio.Event) -> None:
    stopped = asyncio.ensure_future(stop.wait())
    failed = asyncio.ensure_future(node.failure.wait())
    try:
        await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in (stopped, failed):
            waiter.cancel()
    if node.failure.reason is not None:
        raise InternalError(f"the node stopped itself: {node.failure.reason}")


def _nothing_to_reload() -> None:
    logger.info("SIGHUP ignored: the node is starting, and reads tokens and certificates anyway")


def _reload(http: HttpInterface, replica: ReadReplica, node: Node) -> None:
    look_again()
    node.pool.look_for_keys()
    logger.info("the stores' credentials are read again at the next request")
    read: list[str] = []
    has_failed = False
    for reload, names in (
        (http.tokens.reload, "tokens"),
        (http.server.reload_tls, "certificates"),
        (replica.reload_tls, "certificates of the read listener"),
        (node.quorum_tls.reload, "certificates of the quorum"),
    ):
        try:
            read += [names] if reload() else []
        except InvalidRequest as error:
            has_failed = True
            logger.error("kept the old %s: %s", names, error)
    if read or not has_failed:
        logger.info("%s", f"{' and '.join(read)} were read again" if read else NOTHING_TO_READ)


def log_event(event: CopyEvent) -> None:
    """Log a line for each event; those that only show progress at level DEBUG."""
    match event:
        case PartitionClaimed():
            tier_logger.info(
                "claimed %s at leader epoch %d (token %d)",
                event.partition,
                event.leader_epoch,
                event.token,
            )
        case ClaimLost():
            tier_logger.info("gave up %s: %s", event.partition, event.why)
        case SegmentCopied():
            tier_logger.info(
                "copied %s, offsets %d to %d, %d bytes in %d ms",
                event.segment_id,
                event.start_offset,
                event.end_offset,
                event.size_bytes,
                event.took_ms,
            )
        case SegmentFailed():
            tier_logger.warning(
                "copy of %s failed (%s): %s", event.partition, event.kind, event.error
            )
        case SegmentDeleted():
            tier_logger.info("deleted %s: %s", event.segment_id, event.why)
        case HoldReleased() if event.missed:
            tier_logger.error(
                "no longer held (%s): offsets %d to %d of %s, which were never copied",
                event.why,
                event.start,
                event.end,
                event.partition,
            )
        case LostRangeRecorded():
            tier_logger.error(
                "LOST: offsets %d to %d of %s were gone before they were copied: %s",
                event.start,
                event.end,
                event.partition,
                event.why,
            )
        case _:
            tier_logger.debug("%s", event)
