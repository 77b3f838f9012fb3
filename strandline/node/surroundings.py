"""The identity, limits and rates of a node, in the types of the control plane."""

from __future__ import annotations

from importlib.metadata import version

from rlm.control.surroundings import Ambient, CopyLimits, Identity, Surroundings
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import FlowLimits, Rates
from rlmm.data_directory.data_directory import DataDirectory
from rlmm.records.node_facts import NodeFacts, Program
from rlmm.rows.feature_level import LEVELS_KNOWN
from rsm_backends.open_store import StoreSurroundings
from strandline.node import ambient
from strandline.settings.settings import Settings

AMBIENT = Ambient(
    now_ms=ambient.now_ms,
    monotonic=ambient.monotonic,
    sleep=ambient.sleep,
    random_fraction=ambient.random_fraction,
    new_uuid=ambient.new_uuid,
)


def store_surroundings() -> StoreSurroundings:
    """The clocks and the randomness of a store that this process opens."""
    return StoreSurroundings(
        sleep=ambient.sleep,
        monotonic=ambient.monotonic,
        random_fraction=ambient.random_fraction,
        now_ms=ambient.now_ms,
    )


def surroundings(settings: Settings, directory: DataDirectory) -> Surroundings:
    """The identity, limits and clocks of the node with this data directory."""
    identity = Identity(
        cluster_id=str(directory.cluster_id),
        kafka_cluster_id=directory.kafka_cluster_id,
        incarnation=directory.incarnation,
        facts=node_facts(settings),
    )
    return Surroundings(identity, copy_limits(settings), AMBIENT)


def node_facts(settings: Settings) -> NodeFacts:
    """The facts about this node that its registration gives to the other nodes."""
    quorum = settings.quorum
    return NodeFacts(
        read=settings.read.registered(),
        program=Program(version("strandline"), LEVELS_KNOWN.lowest, LEVELS_KNOWN.highest),
        http=settings.http.registered(quorum.advertised or quorum.listen),
        quorum=quorum.advertised or quorum.listen or None,
        log_dirs=len(settings.kafka.log_dirs),
    )


def copy_limits(settings: Settings) -> CopyLimits:
    """The limits of the control plane, from the settings."""
    copier = settings.copier
    return CopyLimits(
        scan_interval_s=copier.interval_s,
        leadership_interval_s=copier.leadership_interval_s,
        copies_parallel_max=copier.parallel_max,
        copies_per_log_dir_max=copier.per_log_dir_max,
        part_bytes=copier.part_bytes,
        batch_bytes_max=copier.batch_bytes_max,
        parts_parallel=copier.parts_parallel,
        upload_deadline_s=copier.upload_deadline_s,
        upload_margin_s=copier.upload_margin_s,
        takeover_settle_s=copier.takeover_settle_s,
        propose_deadline_s=settings.metadata.propose_deadline_s,
        backoff_base_s=copier.backoff_base_s,
        backoff_max_s=copier.backoff_max_s,
        retention_interval_s=settings.retention.interval_s,
        retention_max_percent=settings.retention.max_percent,
        retention_trash_s=settings.retention.trash_s,
        delete_delay_s=settings.retention.delete_delay_s,
        deletion_settle_s=settings.retention.deletion_settle_s,
        clock_hold_s=settings.retention.clock_hold_s,
    )


def flow_control(settings: Settings) -> FlowControl:
    """The node's rate limits, from the settings. Raises InvalidRequest if one can't be kept."""
    limits = settings.limits
    topics = limits.topic_copy_bytes_per_s.keys() | limits.topic_read_bytes_per_s.keys()
    return FlowControl(
        FlowLimits(
            Rates(limits.copy_bytes_per_s or None, limits.read_bytes_per_s or None),
            {
                topic: Rates(
                    limits.topic_copy_bytes_per_s.get(topic) or None,
                    limits.topic_read_bytes_per_s.get(topic) or None,
                )
                for topic in topics
            },
        ),
        part_bytes=settings.copier.part_bytes,
        workers=settings.worker.count,
        monotonic=ambient.monotonic,
    )
