"""A quorum of nodes whose metadata log begins with many partitions and segments."""

from __future__ import annotations

from pathlib import Path

from bench.metadata_set import KAFKA_CLUSTER_ID, MetadataSet, write_set_snapshot
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.cluster_marker import ClusterMarker
from rlmm.data_directory.data_directory import open_data_directory
from tests.e2e.node_process import Sections
from tests.e2e.node_quorum import COPIER_ID, NodeQuorum


class StockedQuorum(NodeQuorum):
    """The first node begins with a snapshot of `metadata_set`; the others fetch it.

    The first `stocked` partitions have their segments, the others none. `store` is the folder of
    the one store; it gets the cluster's marker, but no objects.
    """

    def __init__(
        self,
        home: Path,
        sections: Sections,
        log_dir: Path,
        *,
        store: Path,
        metadata_set: MetadataSet,
        stocked: int,
    ) -> None:
        super().__init__(home, KAFKA_CLUSTER_ID, sections, log_dir)
        self._store = store
        self._metadata_set = metadata_set
        self._stocked = stocked

    def format(self, *options: str) -> None:
        super().format(*options)
        log_path = self.nodes[COPIER_ID].metadata_log
        with open_data_directory(log_path.parents[1]) as directory:
            identity, voters = str(directory.cluster_id), directory.initial_voters
        write_set_snapshot(log_path, self._metadata_set, voters, stocked=self._stocked)
        marker = self._store / cluster_marker_key("")
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_bytes(ClusterMarker(identity, KAFKA_CLUSTER_ID, store="main").encode())
