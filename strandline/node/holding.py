"""Build the hold, which keeps segments from the broker's local retention, from the settings."""

from __future__ import annotations

from functools import partial

from rlm.control.run_events import OnEvent
from rlm.copy.hold import Hold, HoldLimits
from rlm.local_log.hold_directory import HoldDirectory, hold_directories
from rlmm.data_directory.data_directory import DataDirectory
from rlmm.manager.manager import RemoteLogMetadataManager
from strandline.node import ambient
from strandline.settings.settings import Settings


def open_hold(
    settings: Settings,
    directory: DataDirectory,
    metadata: RemoteLogMetadataManager,
    on_event: OnEvent,
) -> Hold | None:
    """The hold; None without hold directories. InvalidRequest: a directory can't be used."""
    if not settings.hold.dirs:
        return None
    own_name = f"{directory.cluster_id}-{directory.node_id}"
    return Hold(
        configured_directories(settings, own_name),
        metadata,
        HoldLimits(bytes_max=settings.hold.bytes_max, free_bytes_min=settings.hold.free_bytes_min),
        breathe=partial(ambient.sleep, 0),
        on_event=on_event,
    )


def configured_directories(settings: Settings, own_name: str) -> tuple[HoldDirectory, ...]:
    """A hold directory for each mount of log directories. InvalidRequest(hold.dirs) says what to
    do.
    """
    return hold_directories(settings.hold.dirs, settings.kafka.log_dirs, own_name=own_name)
