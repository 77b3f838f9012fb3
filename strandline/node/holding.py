"""Builds the hold from the settings; the hold keeps segments from the broker's local retention."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence, Set
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path

from kafka_formats.errors import Conflict, Refused
from rlm.control.run_events import OnEvent
from rlm.copy.hold import Hold, HoldLimits, Outside
from rlm.local_log.active_links import active_root
from rlm.local_log.hold_beside import (
    find_beside,
    is_left,
    left_beside,
    may_be_there,
    sibling,
    why_not_held,
)
from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.hold_dirs import hold_directories
from rlm.local_log.hold_names import (
    hold_name,
    is_of_another_node,
    others,
    take_over,
    why_left,
    why_not_used,
)
from rlm.local_log.hold_owner import become_owner, is_owned
from rlmm.data_directory.data_directory import DataDirectory
from rlmm.manager.manager import RemoteLogMetadataManager
from strandline.node import ambient
from strandline.settings.settings import Settings

logger = logging.getLogger(__name__)


def open_hold(
    settings: Settings,
    directory: DataDirectory,
    metadata: RemoteLogMetadataManager,
    on_event: OnEvent,
    building: AsyncExitStack | ExitStack,
) -> Hold | None:
    """The hold; None without hold directories. This process owns its directories until `building`
    is closed. If a different node owns one, the hold reports a problem and the node runs without
    that directory: segments that are not held are lost if the broker deletes them before they are
    copied.

    Raises InvalidRequest if a directory of hold.dirs can't be used, Refused if one can't be locked
    or the directory of an earlier version can't be renamed.
    """
    own_name = hold_name(directory.kafka_cluster_id, directory.node_id)
    before = hold_name(directory.cluster_id, directory.node_id)
    if settings.holds_beside:
        found, not_held = _beside(settings.kafka.log_dirs, own_name)
    elif settings.hold.dirs:
        log_dirs = settings.kafka.log_dirs
        found, not_held = hold_directories(settings.hold.dirs, log_dirs, own_name=own_name), {}
    else:
        return None
    refused = {
        each: text
        for each in found
        if (text := _why_refused(each.path, directory, settings, building)) is not None
    }
    directories = [each for each in found if each not in refused]
    for each in directories:
        _take_over(each.path.with_name(before), each.path)
        _take_over(active_root(each.path.with_name(before)), active_root(each.path))
    outside = Outside(
        {str(log_dir): text for log_dir, text in not_held.items()}
        | {str(each.path): text for each, text in refused.items()}
        | dict(_not_used(directories, before)),
        frozenset((*not_held, *(log_dir for each in refused for log_dir in each.log_dirs))),
        partial(_holds_unread, settings, own_name, {each.path for each in found}),
    )
    return Hold(
        directories,
        metadata,
        HoldLimits(bytes_max=settings.hold.bytes_max, free_bytes_min=settings.hold.free_bytes_min),
        breathe=partial(ambient.sleep, 0),
        on_event=on_event,
        outside=outside,
    )


def _holds_unread(settings: Settings, own_name: str, known: Set[Path], log_dir: Path) -> bool:
    own = sibling(log_dir) / own_name
    return settings.holds_beside and own not in known and is_left(own)


def _beside(
    log_dirs: Sequence[Path], own_name: str
) -> tuple[tuple[HoldDirectory, ...], dict[Path, str]]:
    """The hold directories beside the log directories, created if needed, and for each log
    directory without one the reason. Directories that are no longer used but still hold segments
    are included.
    """
    beside = find_beside(log_dirs)
    used = {path: tuple(beside.paths.get(path, ())) for path in left_beside(log_dirs, own_name)}
    not_held_now = dict(beside.not_held)
    for path, paths in beside.paths.items():
        try:
            for each in (path, path / own_name):  # without it `Hold.begin` would stop the node
                each.mkdir(mode=0o700, exist_ok=True)
            used[path] = tuple(paths)
        except OSError as error:
            why = f"{path} can't be made ({error.strerror}); then start the node again"
            not_held_now |= {each: why_not_held(each, why) for each in paths}
    found = tuple(HoldDirectory(path / own_name, paths) for path, paths in used.items())
    return found, not_held_now


def _why_refused(
    path: Path,
    directory: DataDirectory,
    settings: Settings,
    building: AsyncExitStack | ExitStack,
) -> str | None:
    """Own the hold directory until `building` is closed; else returns the reason why the node runs
    without it. Raises Refused if the node must not run.
    """
    cluster_id = str(directory.cluster_id)
    try:
        owned = become_owner(path, cluster_id)
    except Conflict as error:
        return str(error)  # the node's report logs it
    except OSError as error:
        text = (
            f"{path} can't be locked ({error.strerror}), so no segments are held there: make "
            f"{path.parent} writable for the node's user, or set hold.dirs to a different directory"
        )
        if settings.holds_beside and may_be_there(path):
            return _why_unread(path, error)
        if settings.holds_beside:
            return text
        raise Refused(text) from error
    building.callback(os.close, owned.descriptor)
    if owned.before not in (None, cluster_id):
        logger.warning(
            "%s belonged to the Strandline cluster %s, of which no node runs on this machine: this "
            "node, of the cluster %s, takes it over",
            path, owned.before, cluster_id,
        )  # fmt: skip
    return None


def _why_unread(path: Path, error: OSError) -> str:
    return (
        f"the segments held in {path} can't be read ({error.strerror}), and offsets recorded as "
        f"lost may be among them: chown {path.parent} and all its contents to the node's user and "
        "start the node again, which then copies them. If the directory belongs to a different "
        "node, set hold.dirs"
    )


def _take_over(before: Path, own: Path) -> None:
    try:
        take_over(before, own)
    except OSError as error:
        raise Refused(
            f"{before} can't be renamed to {own} ({error.strerror}): rename it, so that the "
            "segments in it are not recorded as lost, or remove it if you don't need them"
        ) from error


def _not_used(directories: Sequence[HoldDirectory], before: str) -> Iterator[tuple[str, str]]:
    """(directory, sentence) for each hold directory of an unknown owner, or of a node that does not
    run on this machine. The sentences are logged, too.
    """
    for own in (each.path for each in directories):
        try:
            found = [
                (each, is_of_another_node(each, own))
                for each in others(own)
                if not (is_of_another_node(each, own) and is_owned(own.with_name(each.name)))
            ]
        except OSError:
            continue  # the hold itself reports a disk that can't be read
        for each, is_left_by_a_node in found:
            why = why_left if is_left_by_a_node else why_not_used
            text = why(each, own, own.with_name(before))
            logger.warning("%s", text)
            yield str(each), text
