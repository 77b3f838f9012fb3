"""`strandline format`: makes a node's data directory, with the identity of its broker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import MetaProperties, parse_meta_properties
from rlm.control.audit import AuditAction, AuditLine
from rlm.node_files.audit_log import DIRECTORY_NAME, AuditLog
from rlmm.data_directory.data_directory import META_PROPERTIES, NewDirectory, format_data_directory
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.quorum.config import LISTENER_NAME
from strandline.node import ambient, event_loop
from strandline.node.restarting import TakenOver, restart_from
from strandline.settings.settings import Settings
from strandline.settings.voter_text import parse_address

_T = TypeVar("_T")

OTHERS_BY_LISTEN = (
    "quorum.listen is set, as on a node with other voters, but this node would become the only "
    "voter of a new cluster. That would end a cluster that a different node may already have begun "
    "from the snapshot: give the same --cluster-id and --initial-voters on all nodes. If this node "
    "is to be the only voter, give --standalone"
)

ALONE_BY_ACCIDENT = (
    "a cluster id or quorum.bootstrap is given, which names a quorum, but this node would become "
    "the only voter of a new quorum. To join the existing quorum (also as a voter that lost its "
    "disk, once it is removed there), give --no-initial-voters; for a new quorum of several nodes, "
    "give --initial-voters; for a new quorum of this node alone, give --standalone"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """The operator's choices for a new node.

    `initial_voters` None makes a new quorum of this node alone; an empty tuple makes a node that
    joins an existing quorum. A new quorum of several nodes needs the same `cluster_id` and voters
    on each. If a cluster id or `quorum.bootstrap` suggests other nodes, `standalone` has to confirm
    a quorum of one. Kafka's cluster id and the node id default to those of the log directories.
    """

    cluster_id: Uuid | None = None
    kafka_cluster_id: str | None = None
    node_id: int | None = None
    initial_voters: tuple[Voter, ...] | None = None
    standalone: bool = False


def format_for(
    settings: Settings,
    new: NewNode = NewNode(),
    *,
    only_if_absent: bool = False,
    from_snapshot: str | None = None,
    confirmed: bool = False,
) -> bool:
    """Make the data directory of `settings`; True if it was made.

    With `only_if_absent` a formatted directory is kept, and the result is False. `from_snapshot` (a
    file, or `latest`) takes over the tier of a lost cluster, if it is `confirmed` that none of its
    nodes is left.
    """
    data_dir = settings.node.data_dir
    if only_if_absent and (data_dir / META_PROPERTIES).is_file():
        return False
    broker = broker_identity(settings.kafka.log_dirs)
    if broker is None:
        _check_identity(new)
    own_id = _chosen("--node-id", new.node_id, broker.node_id if broker else None)
    named = new.cluster_id is not None or bool(settings.quorum.bootstrap)
    _check_way(new, alone_by_accident=named and not new.standalone)
    if from_snapshot is not None and new.initial_voters is None and not new.standalone:
        _check_alone(settings)
    directory_id, voters = _initial_voters(new.initial_voters, own_id, settings)
    new_id = new.cluster_id or ambient.new_uuid()
    kafka_id = _chosen(
        "--kafka-cluster-id", new.kafka_cluster_id, broker.cluster_id if broker else None
    )
    write = partial(
        format_data_directory,
        data_dir,
        NewDirectory(new_id, kafka_id, own_id, directory_id, voters),
        boots=ambient.now_ms() // 1000,
    )
    if from_snapshot is None:
        write()
        return True
    if not voters:
        raise InvalidRequest(
            "a node that joins a quorum gets the snapshot from its leader: leave this option out",
            field="--from-snapshot",
        )
    taken = event_loop.run(
        restart_from(
            settings,
            from_snapshot,
            cluster_id=str(new_id),
            kafka_cluster_id=kafka_id,
            confirmed=confirmed,
            write_directory=lambda path, step: write(snapshot=path, before_last_step=step),
        )
    )
    event_loop.run(_keep_takeover(data_dir, taken, f"node {own_id}, format"))
    return True


def _check_way(new: NewNode, *, alone_by_accident: bool) -> None:
    if new.initial_voters is not None and new.cluster_id is None:
        raise InvalidRequest(
            "--initial-voters needs the cluster's id: give the same on each node (`strandline "
            "random-uuid` makes one)",
            field="--cluster-id",
        )
    if new.initial_voters is None and alone_by_accident:
        raise InvalidRequest(ALONE_BY_ACCIDENT, field="--standalone")


def _check_alone(settings: Settings) -> None:
    """Raise InvalidRequest if other nodes seem to be planned: if each of them began a cluster of
    its own, each would take the stores' prefix from the one before.
    """
    if settings.quorum.listen:
        raise InvalidRequest(OTHERS_BY_LISTEN, field="--standalone")


async def _keep_takeover(data_dir: Path, taken: TakenOver, by: str) -> None:
    """Write the first line of the new node's audit log. Raises RetryLater if it can't be written;
    everything else is done by then.
    """
    why = (
        f"from the cluster {taken.predecessor}, with its snapshot {taken.snapshot}; stores: "
        f"{', '.join(taken.stores)}"
    )
    audit = AuditLog(data_dir / DIRECTORY_NAME, sleep=ambient.sleep)
    try:
        await audit.keep(
            AuditLine(
                ambient.now_ms(), AuditAction.PREFIX_TAKEN_OVER, None, None, -1, -1, -1, why, by
            )
        )
    finally:
        await audit.close()


def _initial_voters(
    given: tuple[Voter, ...] | None, own_id: int, settings: Settings
) -> tuple[Uuid, tuple[Voter, ...]]:
    """This node's directory id, and the voters: `given`, or if that is None this node alone."""
    own = next((each for each in given or () if each.node_id == own_id), None)
    directory_id = own.directory_id if own else ambient.new_uuid()
    if given is None:
        return directory_id, (Voter(own_id, directory_id, _endpoints(settings)),)
    return directory_id, given


def _endpoints(settings: Settings) -> tuple[Endpoint, ...]:
    """The endpoint where the other nodes reach this one; empty without a listener."""
    address = settings.quorum.advertised or settings.quorum.listen
    if not address:
        return ()
    return (Endpoint(LISTENER_NAME, *parse_address(address, field="quorum.advertised")),)


def broker_identity(log_dirs: list[Path]) -> MetaProperties | None:
    """The broker's identity from the first log directory; None without log directories. Raises
    InvalidRequest if it can't be read.
    """
    if not log_dirs:
        return None
    path = log_dirs[0] / META_PROPERTIES
    try:
        return parse_meta_properties(path.read_bytes(), source=str(path))
    except OSError as error:
        raise InvalidRequest(
            f"{log_dirs[0]} is not a Kafka log directory: {META_PROPERTIES} can't be read "
            f"({error.strerror}). Correct the setting, or let the node's user read the directory",
            field="kafka.log_dirs",
        ) from None


def _check_identity(new: NewNode) -> None:
    """Raise InvalidRequest with all missing options, since no log directory has their values."""
    given = {"--node-id": new.node_id, "--kafka-cluster-id": new.kafka_cluster_id}
    missing = [option for option, value in given.items() if value is None]
    if missing:
        raise InvalidRequest(
            "these options are missing: give them, or set kafka.log_dirs, from which their values "
            "are read",
            field=", ".join(missing),
        )


def _chosen(option: str, given: _T | None, found: _T | None) -> _T:
    """The value that the operator gave or the one found in the log directory; if both exist they
    must be equal.
    """
    if given is not None and found is not None and given != found:
        raise InvalidRequest(
            f"{given} was given, but the log directory has {found}: leave the option out, or "
            "correct it or kafka.log_dirs",
            field=option,
        )
    chosen = found if given is None else given
    assert chosen is not None
    return chosen
