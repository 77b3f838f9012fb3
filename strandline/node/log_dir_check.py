"""Check of the log directories' owner, once, before a node serves anything.

The node's own scan checks it again later. But settings that name another cluster's directory are a
mistake to stop at, while a disk that is not mounted may come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafka_formats.errors import Refused
from kafka_formats.properties import parse_meta_properties
from rlmm.data_directory.data_directory import META_PROPERTIES, DataDirectory


def check_log_dirs(log_dirs: Sequence[Path], directory: DataDirectory) -> None:
    """Raise Refused if a directory is of another Kafka cluster or broker than the node's."""
    for log_dir in log_dirs:
        path = log_dir / META_PROPERTIES
        try:
            found = parse_meta_properties(path.read_bytes(), source=str(path))
        except OSError:
            continue  # not there (now): the scan reports it, and takes it once it is there
        if found.cluster_id != directory.kafka_cluster_id:
            raise Refused(
                f"{log_dir} belongs to the Kafka cluster {found.cluster_id}, the data directory "
                f"{directory.path} was formatted for {directory.kafka_cluster_id}: correct "
                "kafka.log_dirs or node.data_dir"
            )
        if found.node_id != directory.node_id:
            raise Refused(
                f"{log_dir} belongs to broker {found.node_id}, the data directory "
                f"{directory.path} to node {directory.node_id}: correct kafka.log_dirs or "
                "node.data_dir; one node serves one broker"
            )
