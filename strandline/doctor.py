"""`strandline doctor`: looks at everything a node needs, changes nothing, says what to do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.errors import StrandlineError
from rlm.log_dir import find_partitions
from rlm.topic_filter import TopicFilter
from rlmm.data_directory import META_PROPERTIES
from rsm_backends.open_store import open_store
from rsm_backends.probe import probe
from rsm_backends.store_config import StoreConfig
from strandline import ambient
from strandline.broker_connection import open_broker_view
from strandline.formatting import broker_identity
from strandline.settings import Settings
from strandline.store_configs import store_configs

PROBE_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check; `detail` is what was found or what to do."""

    check: str
    ok: bool
    detail: str


async def examine(settings: Settings) -> list[Finding]:
    """All checks, in the order in which a start needs them. Never raises for what it examines."""
    return [finding async for finding in _examine(settings)]


async def _examine(settings: Settings) -> AsyncIterator[Finding]:
    yield _data_directory(settings.node.data_dir)
    for finding in await asyncio.to_thread(_log_dirs, settings):
        yield finding
    yield await _broker(settings)
    try:
        configs = store_configs(settings)
    except StrandlineError as error:
        yield Finding("stores", False, str(error))
        return
    for config in configs.values():
        for finding in await _store(config):
            yield finding


def _data_directory(path: Path) -> Finding:
    check = f"data directory {path}"
    if not (path / META_PROPERTIES).is_file():
        return Finding(check, False, "not formatted: run `strandline format`")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(check, False, "not writable: give it to the node's user")
    space = os.statvfs(path)
    return Finding(check, True, f"formatted, {space.f_bavail * space.f_frsize >> 20} MiB free")


def _log_dirs(settings: Settings) -> list[Finding]:
    paths = settings.kafka.log_dirs
    if not paths:
        return [Finding("log directories", False, "none configured: set kafka.log_dirs")]
    try:
        scan = find_partitions(paths, kafka_cluster_id=None)
    except StrandlineError as error:
        return [Finding("log directories", False, str(error))]
    topics = TopicFilter(tuple(settings.topics.include), tuple(settings.topics.exclude))
    tiered = sum(topics.why_left_out(each.partition.topic) is None for each in scan.partitions)
    detail = f"{len(scan.partitions)} partitions, {tiered} of them to be tiered"
    if not tiered:
        detail += ": name topics in topics.include"
    findings = [Finding("log directories", bool(tiered), detail)]
    findings += [
        Finding(f"log directory {problem.path}", False, problem.message)
        for problem in scan.problems
    ]
    return findings


async def _broker(settings: Settings) -> Finding:
    check = f"broker {settings.kafka.broker}".strip()
    if not settings.kafka.broker:
        return Finding(check, True, "none configured: directories are taken as standalone")
    try:
        identity = broker_identity(settings.kafka.log_dirs)
        if identity is None:
            return Finding(check, False, "set kafka.log_dirs, to know whose node it must be")
        broker = open_broker_view(
            settings.kafka, node_id=identity.node_id, kafka_cluster_id=identity.cluster_id
        )
        try:
            await broker.check()
        finally:
            await broker.close()
    except StrandlineError as error:
        return Finding(check, False, str(error))
    return Finding(check, True, f"node {identity.node_id} answers")


async def _store(config: StoreConfig) -> list[Finding]:
    check = f"store {config.name}"
    try:
        store = await open_store(
            config,
            sleep=ambient.sleep,
            monotonic=ambient.monotonic,
            random_fraction=ambient.random_fraction,
            now_ms=ambient.now_ms,
        )
    except StrandlineError as error:
        return [Finding(check, False, str(error))]
    try:
        async with asyncio.timeout(PROBE_DEADLINE_S):
            results = await probe(store, config.prefix, ambient.new_nonce())
    except TimeoutError:
        return [Finding(check, False, f"no answer within {PROBE_DEADLINE_S:.0f} s")]
    except StrandlineError as error:
        return [Finding(check, False, str(error))]
    finally:
        await store.close()
    return [Finding(f"{check}: {each.name}", each.ok, each.detail) for each in results]
