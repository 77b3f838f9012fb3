"""`strandline format` from settings: who this node is, taken from the broker beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.properties import MetaProperties, parse_meta_properties
from rlmm.data_directory import META_PROPERTIES, format_data_directory
from rlmm.log.quorum_records import Voter
from strandline import ambient
from strandline.settings import Settings

_T = TypeVar("_T")


def format_for(
    settings: Settings,
    *,
    cluster_id: Uuid | None = None,
    kafka_cluster_id: str | None = None,
    node_id: int | None = None,
    only_if_absent: bool = False,
) -> bool:
    """Make the data directory of `settings` for a standalone node; True if it was made.

    The Kafka cluster id and node id default to those in `meta.properties` of the log directories.
    `only_if_absent` leaves a formatted directory as it is.
    """
    data_dir = settings.node.data_dir
    if only_if_absent and (data_dir / META_PROPERTIES).is_file():
        return False
    broker = broker_identity(settings.kafka.log_dirs)
    directory_id = ambient.new_uuid()
    own_id = _chosen("--node-id", node_id, broker.node_id if broker else None)
    format_data_directory(
        data_dir,
        cluster_id=cluster_id or ambient.new_uuid(),
        kafka_cluster_id=_chosen(
            "--kafka-cluster-id", kafka_cluster_id, broker.cluster_id if broker else None
        ),
        node_id=own_id,
        directory_id=directory_id,
        voters=(Voter(own_id, directory_id),),
    )
    return True


def broker_identity(log_dirs: list[Path]) -> MetaProperties | None:
    """What the first log directory says of its broker; None when there is none configured."""
    if not log_dirs:
        return None
    path = log_dirs[0] / META_PROPERTIES
    try:
        return parse_meta_properties(path.read_bytes(), source=str(path))
    except OSError as error:
        raise InvalidRequest(
            f"{log_dirs[0]} is not a Kafka log directory: {META_PROPERTIES} can't be read "
            f"({error.strerror})",
            field="kafka.log_dirs",
        ) from None


def _chosen(option: str, given: _T | None, found: _T | None) -> _T:
    """What the operator gave, which must not contradict what the broker's directory says."""
    if given is None and found is None:
        raise InvalidRequest("give it, or configure kafka.log_dirs to take it from", field=option)
    if given is not None and found is not None and given != found:
        raise InvalidRequest(f"{given} was given, the log directory says {found}", field=option)
    chosen = found if given is None else given
    assert chosen is not None
    return chosen
