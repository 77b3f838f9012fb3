"""Build the hold, which keeps segments from the broker's local retention, from the settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kafka_formats.errors import Refused
from rlm.control.run_events import OnEvent
from rlm.copy.hold import Hold, HoldLimits
from rlm.local_log.hold_directory import HoldDirectory, hold_directories
from rlm.local_log.hold_names import (
    hold_name,
    is_of_another_node,
    others,
    take_over,
    why_not_used,
)
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
) -> Hold | None:
    """The hold; None without hold directories. InvalidRequest: a directory can't be used. Refused:
    what an earlier version held can't be taken over.
    """
    if not settings.hold.dirs:
        return None
    own_name = hold_name(directory.kafka_cluster_id, directory.node_id)
    before = hold_name(directory.cluster_id, directory.node_id)
    directories = hold_directories(settings.hold.dirs, settings.kafka.log_dirs, own_name=own_name)
    for each in directories:
        _take_over(each.path.with_name(before), each.path)
    return Hold(
        directories,
        metadata,
        HoldLimits(bytes_max=settings.hold.bytes_max, free_bytes_min=settings.hold.free_bytes_min),
        breathe=partial(ambient.sleep, 0),
        on_event=on_event,
        not_used=tuple(_not_used(directories, before)),
    )


def _take_over(before: Path, own: Path) -> None:
    try:
        take_over(before, own)
    except OSError as error:
        raise Refused(
            f"{before} cannot be renamed to {own} ({error.strerror}): rename it, so that what it "
            "holds is not taken for lost, or remove it if it may be lost"
        ) from error


def _not_used(directories: Sequence[HoldDirectory], before: str) -> Iterator[str]:
    """Sentences about directories of nobody known, logged as well."""
    for own in (each.path for each in directories):
        try:
            found = [each for each in others(own) if not is_of_another_node(each, own)]
        except OSError:
            continue  # the hold reports the disk
        for each in found:
            text = why_not_used(each, own, own.with_name(before))
            logger.warning("%s", text)
            yield text
