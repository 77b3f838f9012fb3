"""Doctor's checks of log directories and of store folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kafka_formats.errors import StrandlineError
from rlm.leadership.topic_filter import TopicFilter, is_internal
from rlm.local_log.log_dir import LocalPartition, LogDirScan, find_partitions
from strandline.doctor import host as doctor_host
from strandline.doctor.finding import Finding
from strandline.doctor.formatted_identity import FormattedIdentity
from strandline.doctor.host import filesystem_of, free_bytes
from strandline.settings.settings import Settings


def check_log_dirs(
    settings: Settings, identity: FormattedIdentity | None
) -> tuple[list[Finding], tuple[LocalPartition, ...]]:
    """Findings about the log directories, and the partitions that the settings file has tiered."""
    paths = settings.kafka.log_dirs
    if not paths and settings.kafka.broker:
        detail = "none are configured: the broker's plug-in sends its segments to this node"
        return [Finding("log directories", True, detail)], ()
    if not paths:
        return [Finding("log directories", False, "none are configured: set kafka.log_dirs")], ()
    try:
        scan = find_partitions(
            paths, kafka_cluster_id=None if identity is None else identity.kafka_cluster_id
        )
    except StrandlineError as error:
        return [Finding("log directories", False, str(error))], ()
    topics = TopicFilter(tuple(settings.topics.include), tuple(settings.topics.exclude))
    tiered = tuple(
        each for each in scan.partitions if topics.why_left_out(each.partition.topic) is None
    )
    detail = f"{len(scan.partitions)} partitions, {len(tiered)} of them tiered by the settings file"
    has_topics = not all(is_internal(each.partition.topic) for each in scan.partitions)
    nothing_yet = not (has_topics or scan.problems) and bool(settings.topics.include)
    if nothing_yet:
        detail += ": the broker has no topics yet; the node finds new topics by itself"
    elif not scan.partitions and scan.problems:
        detail += ": no partition of the broker can be used, for the reasons below"
    elif not settings.topics.include:
        detail += (
            ", which has no topics.include: only topics that were enabled with `strandline topics "
            "enable` are tiered; see `strandline topics list`"
        )
    elif not tiered:
        detail += ": topics.include matches none of their topics, correct it"
    some = tiered or nothing_yet or (scan.partitions and not settings.topics.include)
    findings = [Finding("log directories", bool(some), detail)]
    if identity is not None and scan.node_id not in (None, identity.node_id):
        detail = (
            f"the log directories belong to broker {scan.node_id}, the data directory to node "
            f"{identity.node_id}: correct kafka.log_dirs or node.data_dir"
        )
        findings.append(Finding("log directories' broker", False, detail))
    findings += _of_each(paths, scan, tiered)
    return findings, tiered


def _of_each(
    paths: list[Path], scan: LogDirScan, tiered: tuple[LocalPartition, ...]
) -> Iterator[Finding]:
    """A finding for each problem, and one for each directory without a problem."""
    broken = {problem.path for problem in scan.problems}
    for problem in scan.problems:
        yield Finding(f"log directory {problem.path}", False, problem.message)
    for path in dict.fromkeys(paths):
        if path in broken:
            continue
        segments = [
            segment.log_path
            for each in tiered
            if each.directory.parent == path
            for segment in each.segments
        ]
        unreadable = [each for each in segments if not os.access(each, os.R_OK)]
        check = f"log directory {path}"
        if unreadable:
            detail = (
                f"{len(unreadable)} of {len(segments)} segments to be tiered can't be read, for "
                f"example {unreadable[0]}: let the node's user read the broker's files"
            )
            yield Finding(check, False, detail)
        else:
            on = filesystem_of(path)
            yield Finding(check, True, f"{len(segments)} segments can be read, on {on}")


def check_store_folders(settings: Settings) -> Iterator[Finding]:
    """A finding for each folder of a file-system store: durable file system, enough free space."""
    for name, store in settings.stores.items():
        if store.path is None or not store.path.is_dir():
            continue  # `check_store` reports a missing folder
        check = f"store {name}: folder {store.path}"
        kind = filesystem_of(store.path)
        free = free_bytes(store.path)
        if kind in doctor_host.VOLATILE:
            detail = f"on {kind}, which loses its contents at a reboot: use a disk"
            yield Finding(check, False, detail)
        elif free < doctor_host.DISK_FREE_BYTES_MIN:
            yield Finding(check, False, f"only {free >> 20} MiB free on {kind}: make room")
        else:
            together = " and ".join(_beside(store.path, settings))
            with_ = f", on the same disk as {together} and lost with it" if together else ""
            yield Finding(check, True, f"{free >> 20} MiB free on {kind}{with_}")


def _beside(folder: Path, settings: Settings) -> Iterator[str]:
    """Settings whose directories are on the same device as `folder`."""
    device = folder.stat().st_dev
    ours = {
        "the log directories": settings.kafka.log_dirs,
        "node.data_dir": [settings.node.data_dir],
    }
    for name, paths in ours.items():
        if any(path.exists() and path.stat().st_dev == device for path in paths):
            yield name
