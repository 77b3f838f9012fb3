"""`strandline doctor`: check everything a node needs, change nothing, say what to do."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

from api.http.tokens import TokenBook
from kafka_formats.errors import StrandlineError
from strandline.doctor.aiven_keys import check_aiven_keys
from strandline.doctor.directories import check_log_dirs, check_store_folders
from strandline.doctor.finding import Finding
from strandline.doctor.formatted_identity import FormattedIdentity, formatted_identity
from strandline.doctor.hold import check_hold
from strandline.doctor.host import (
    check_data_directory,
    check_memory,
    check_open_files,
    check_paths,
    check_versions,
)
from strandline.doctor.network import (
    check_broker,
    check_certificates,
    check_listening,
    check_quorum,
)
from strandline.doctor.private_files import check_private_files
from strandline.doctor.stores import check_store
from strandline.settings.settings import Settings
from strandline.settings.store_configs import store_configs


async def examine(settings: Settings) -> list[Finding]:
    """All checks, in the order in which a start needs them. Never raises for what it examines."""
    return [finding async for finding in _examine(settings)]


async def _examine(settings: Settings) -> AsyncIterator[Finding]:
    yield check_versions()
    yield check_open_files(settings)
    yield check_memory(settings)
    yield check_data_directory(settings.node.data_dir)
    for finding in check_paths(settings):
        yield finding
    identity, trouble = _identity(settings.node.data_dir)
    if trouble is not None:
        yield trouble
    findings, tiered = await asyncio.to_thread(check_log_dirs, settings, identity)
    for finding in (
        *findings,
        *check_hold(settings, identity),
        *await check_broker(settings, tiered),
    ):
        yield finding
    for finding in (
        *check_private_files(settings),
        *check_aiven_keys(settings),
        *check_certificates(settings),
    ):
        yield finding
    for finding in (
        *check_listening(settings),
        *await check_quorum(settings, identity),
        *await _read_listener(settings),
    ):
        yield finding
    yield _tokens(settings)
    for finding in check_store_folders(settings):
        yield finding
    try:
        configs = store_configs(settings)
    except StrandlineError as error:
        yield Finding("stores", False, str(error))
        return
    for config in configs.values():
        for finding in await check_store(config, identity):
            yield finding


async def _read_listener(settings: Settings) -> list[Finding]:
    if not settings.read.listen:
        return []
    from strandline.doctor.read_listener import check_read_listener  # slow: Kafka's schemas

    return await check_read_listener(settings)


def _identity(data_dir: Path) -> tuple[FormattedIdentity | None, Finding | None]:
    try:
        return formatted_identity(data_dir), None
    except StrandlineError as error:
        return None, Finding("data directory's identity", False, str(error))


def _tokens(settings: Settings) -> Finding:
    http = settings.http
    if http.tokens_file is not None:
        try:
            TokenBook(http.tokens_file)
        except StrandlineError as error:
            return Finding("who may ask", False, str(error))
        if http.tokens_file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            detail = (
                f"others can give themselves a token of role admin: chmod go-w {http.tokens_file}"
            )
            return Finding("who may ask", False, detail)
        return Finding("who may ask", True, f"holders of the tokens in {http.tokens_file}")
    if http.anonymous_role == "none":
        detail = 'nobody: set http.tokens_file, or on loopback http.anonymous_role = "read"'
        return Finding("who may ask", False, detail)
    return Finding("who may ask", True, f"everybody on this machine, role {http.anonymous_role}")
