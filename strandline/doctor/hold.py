"""Doctor's check of the hold directories: links can be made in them, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_formats.errors import StrandlineError
from rlm.local_log.hold_beside import find_beside
from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.hold_dirs import hold_directories
from rlm.local_log.hold_names import hold_name, is_of_another_node, others, why_not_used
from rlm.local_log.hold_owner import other_owner, why_not_owned
from strandline.doctor.finding import Finding
from strandline.doctor.formatted_identity import FormattedIdentity
from strandline.doctor.host import free_bytes
from strandline.settings.settings import Settings

NONE_IS_HELD = (
    "segments are not held ({why}): a segment that the broker's retention deletes before it is "
    "copied is lost to the tier, also the active segment of a partition that gets no record for "
    "retention.ms"
)


def check_hold(settings: Settings, identity: FormattedIdentity | None) -> Iterator[Finding]:
    """A finding for each hold directory and for each log directory without one, or one finding that
    segments are not held. Leaves no file behind. `identity` is None before `strandline format`;
    the owners of hold directories are not checked then.
    """
    if settings.holds_beside:
        yield from _check_beside(settings, identity)
    elif settings.hold.dirs:
        yield from _check_named(settings, settings.hold.dirs, identity)
    elif settings.kafka.log_dirs:
        why = "hold.dirs is []" if settings.kafka.broker else "kafka.broker is not set"
        yield Finding("hold", True, NONE_IS_HELD.format(why=why))


def _check_beside(settings: Settings, identity: FormattedIdentity | None) -> Iterator[Finding]:
    beside = find_beside(settings.kafka.log_dirs)
    for log_dir, why in beside.not_held.items():
        yield Finding(f"hold {log_dir}", False, why)
    for path, log_dirs in beside.paths.items():
        yield _can_link(settings, path, log_dirs)
        if identity is not None and path.exists():
            try:
                yield from list(_others(path, identity))
            except OSError as error:
                yield Finding(f"hold {path}", False, str(error))


def _check_named(
    settings: Settings, dirs: list[Path], identity: FormattedIdentity | None
) -> Iterator[Finding]:
    try:
        pairs = hold_directories(dirs, settings.kafka.log_dirs, own_name="")
    except StrandlineError as error:
        yield Finding("hold", False, str(error))
        return
    for pair in pairs:
        check = f"hold {pair.path}"
        try:
            with TemporaryDirectory(prefix=".doctor-", dir=pair.path) as aside:
                HoldDirectory(Path(aside), pair.log_dirs).prepare()
            beside = [] if identity is None else list(_others(pair.path, identity))
        except (OSError, StrandlineError) as error:
            yield Finding(check, False, str(error))
            continue
        yield _can_link(settings, pair.path, pair.log_dirs)
        yield from beside


def _can_link(settings: Settings, path: Path, log_dirs: Sequence[Path]) -> Finding:
    named = ", ".join(str(log_dir) for log_dir in log_dirs)
    text = f"segments of {named} can be linked" if named else "no log directory is on its mount now"
    room = free_bytes(path if path.exists() else path.parent)
    if room < settings.hold.free_bytes_min:
        text += (
            f"; {room >> 20} MiB are free, less than hold.free_bytes_min, so segments that the "
            "broker deletes are released here too, copied or not: make room, or lower the setting"
        )
    return Finding(f"hold {path}", True, text)


def _others(path: Path, identity: FormattedIdentity) -> Iterator[Finding]:
    own = path / hold_name(identity.kafka_cluster_id, identity.node_id)
    before = path / hold_name(identity.cluster_id, identity.node_id)
    owner = other_owner(own, identity.cluster_id)
    if owner is not None:
        yield Finding(f"hold {own}", False, why_not_owned(own, owner))
    for each in others(own):
        if is_of_another_node(each, own):
            text = "belongs to a different node of this Kafka cluster: remove it if that is gone"
            yield Finding(f"hold {each}", True, text)
        elif each != before:  # the node takes `before` over at its next start
            yield Finding(f"hold {each}", False, why_not_used(each, own, before))
