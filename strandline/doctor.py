"""`strandline doctor`: looks at everything a node needs, changes nothing, says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from api.tokens import TokenBook
from kafka_formats.errors import StrandlineError
from rlm.log_dir import find_partitions
from rlm.topic_filter import TopicFilter
from strandline.broker_connection import open_broker_view
from strandline.doctor_host import (
    check_data_directory,
    check_open_files,
    check_paths,
    check_versions,
)
from strandline.doctor_stores import check_store
from strandline.finding import Finding
from strandline.formatting import broker_identity
from strandline.identity import FormattedIdentity, formatted_identity
from strandline.private_files import check_private_files
from strandline.settings import Settings
from strandline.store_configs import store_configs


async def examine(settings: Settings) -> list[Finding]:
    """All checks, in the order in which a start needs them. Never raises for what it examines."""
    return [finding async for finding in _examine(settings)]


async def _examine(settings: Settings) -> AsyncIterator[Finding]:
    yield check_versions()
    yield check_open_files(settings)
    yield check_data_directory(settings.node.data_dir)
    for finding in check_paths(settings):
        yield finding
    identity, trouble = _identity(settings.node.data_dir)
    if trouble is not None:
        yield trouble
    for finding in await asyncio.to_thread(_log_dirs, settings, identity):
        yield finding
    yield await _broker(settings)
    for finding in check_private_files(settings):
        yield finding
    yield _tokens(settings)
    try:
        configs = store_configs(settings)
    except StrandlineError as error:
        yield Finding("stores", False, str(error))
        return
    for config in configs.values():
        for finding in await check_store(config, identity):
            yield finding


def _identity(data_dir: Path) -> tuple[FormattedIdentity | None, Finding | None]:
    try:
        return formatted_identity(data_dir), None
    except StrandlineError as error:
        return None, Finding("data directory's identity", False, str(error))


def _log_dirs(settings: Settings, identity: FormattedIdentity | None) -> list[Finding]:
    paths = settings.kafka.log_dirs
    if not paths:
        return [Finding("log directories", False, "none configured: set kafka.log_dirs")]
    try:
        scan = find_partitions(
            paths, kafka_cluster_id=None if identity is None else identity.kafka_cluster_id
        )
    except StrandlineError as error:
        return [Finding("log directories", False, str(error))]
    topics = TopicFilter(tuple(settings.topics.include), tuple(settings.topics.exclude))
    tiered = sum(topics.why_left_out(each.partition.topic) is None for each in scan.partitions)
    detail = f"{len(scan.partitions)} partitions, {tiered} of them to be tiered"
    if not tiered:
        detail += ": name topics in topics.include"
    findings = [Finding("log directories", bool(tiered), detail)]
    if identity is not None and scan.node_id not in (None, identity.node_id):
        detail = f"broker {scan.node_id}'s, the data directory is node {identity.node_id}'s"
        findings.append(Finding("log directories' broker", False, detail))
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


def _tokens(settings: Settings) -> Finding:
    http = settings.http
    if http.tokens_file is not None:
        try:
            TokenBook(http.tokens_file)
        except StrandlineError as error:
            return Finding("who may ask", False, str(error))
        return Finding("who may ask", True, f"holders of the tokens in {http.tokens_file}")
    if http.anonymous_role == "none":
        detail = 'nobody: set http.tokens_file, or on loopback http.anonymous_role = "read"'
        return Finding("who may ask", False, detail)
    return Finding("who may ask", True, f"everybody on this machine, role {http.anonymous_role}")
