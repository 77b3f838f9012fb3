"""`strandline doctor`: checks all that a node needs and reports what to do; changes nothing."""

from __future__ import annotations

import asyncio
import stat
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
    """The findings of all checks, in the order in which a start needs them. A failed check is a
    finding, not an exception.
    """
    data_dir = settings.node.data_dir
    found = [
        check_versions(),
        check_open_files(settings),
        check_memory(settings),
        check_data_directory(data_dir),
        *check_paths(settings),
    ]
    identity, trouble = _identity(data_dir)
    if trouble is not None:
        found.append(trouble)
    findings, tiered = await asyncio.to_thread(check_log_dirs, settings, identity)
    found += findings
    found += check_hold(settings, identity)
    found += await check_broker(settings, tiered)
    found += check_private_files(settings)
    found += check_aiven_keys(settings)
    found += check_certificates(settings)
    found += check_listening(settings)
    found += await check_quorum(settings, identity)
    found += await _read_listener(settings)
    found.append(_tokens(settings))
    found += check_store_folders(settings)
    try:
        configs = store_configs(settings)
    except StrandlineError as error:
        found.append(Finding("stores", False, str(error)))
        return found
    for config in configs.values():
        found += await check_store(config, identity)
    return found


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
            return Finding("HTTP access", False, str(error))
        if http.tokens_file.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            detail = (
                "users other than the owner of the tokens file can add a token of role admin: "
                f"chmod go-w {http.tokens_file}"
            )
            return Finding("HTTP access", False, detail)
        return Finding("HTTP access", True, f"with the tokens in {http.tokens_file}")
    if http.anonymous_role == "none":
        detail = 'none: set http.tokens_file, or on loopback http.anonymous_role = "read"'
        return Finding("HTTP access", False, detail)
    return Finding("HTTP access", True, f"any user of this machine, role {http.anonymous_role}")
