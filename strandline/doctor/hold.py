"""Doctor's check of holding: links from each log directory, and directories of nobody known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_formats.errors import StrandlineError
from rlm.local_log.hold_directory import HoldDirectory, hold_directories
from rlm.local_log.hold_names import hold_name, is_of_another_node, others, why_not_used
from rlm.local_log.hold_owner import other_owner, why_not_owned
from strandline.doctor.finding import Finding
from strandline.doctor.formatted_identity import FormattedIdentity
from strandline.settings.settings import Settings

NOT_SET = (
    "hold.dirs is not set: what the broker's retention deletes before it is copied is lost to the "
    "tier, also the active segment of a partition that nobody writes to for retention.ms"
)


def check_hold(settings: Settings, identity: FormattedIdentity | None) -> Iterator[Finding]:
    """Findings for each hold directory, or one that there is none; leaves no file. `identity` None:
    of an unformatted node, which has none of its own yet.
    """
    if not settings.hold.dirs:
        if settings.kafka.log_dirs:
            yield Finding("hold", True, NOT_SET)
        return
    try:
        pairs = hold_directories(settings.hold.dirs, settings.kafka.log_dirs, own_name="")
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
        named = ", ".join(str(log_dir) for log_dir in pair.log_dirs)
        can = f"links from {named} can be made" if named else "no log directory is on its mount now"
        yield Finding(check, True, can)
        yield from beside


def _others(path: Path, identity: FormattedIdentity) -> Iterator[Finding]:
    own = path / hold_name(identity.kafka_cluster_id, identity.node_id)
    before = path / hold_name(identity.cluster_id, identity.node_id)
    owner = other_owner(own, identity.cluster_id)
    if owner is not None:
        yield Finding(f"hold {own}", False, why_not_owned(own, owner))
    for each in others(own):
        if is_of_another_node(each, own):
            text = "of another node of this Kafka cluster; if there is no such node, remove it"
            yield Finding(f"hold {each}", True, text)
        elif each != before:  # it is taken over at the next start
            yield Finding(f"hold {each}", False, why_not_used(each, own, before))
