"""Checks the owner of the log directories once, before a node starts to serve.

Settings with the log directory of a different broker are a mistake for which the node stops. A disk
that is not mounted may come back, so it is left to the later scans, which check the owner again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafka_formats.errors import Refused
from kafka_formats.properties import parse_meta_properties
from rlmm.data_directory.data_directory import META_PROPERTIES, DataDirectory


def check_log_dirs(log_dirs: Sequence[Path], directory: DataDirectory) -> None:
    """Raise Refused if a log directory belongs to a different Kafka cluster or broker."""
    for log_dir in log_dirs:
        path = log_dir / META_PROPERTIES
        try:
            found = parse_meta_properties(path.read_bytes(), source=str(path))
        except OSError:
            continue  # it may be mounted later; until then the scan reports it
        if found.cluster_id != directory.kafka_cluster_id:
            raise Refused(
                f"{log_dir} belongs to the Kafka cluster {found.cluster_id}, but the data "
                f"directory {directory.path} was formatted for {directory.kafka_cluster_id}: "
                "correct kafka.log_dirs or node.data_dir"
            )
        if found.node_id != directory.node_id:
            raise Refused(
                f"{log_dir} belongs to broker {found.node_id}, but the data directory "
                f"{directory.path} to node {directory.node_id}: correct kafka.log_dirs or "
                "node.data_dir; one node serves one broker"
            )
