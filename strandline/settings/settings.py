"""The settings of a node: one TOML file, and an environment variable that overrides each key.

STRANDLINE_COPIER__INTERVAL_S overrides `[copier] interval_s`. Unknown keys and unknown STRANDLINE_
variables are refused, because a misspelt limit that is silently ignored is worse than a node that
does not start. Secrets are read from files only, never from a value or a variable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from strandline.settings.fields import LOOPBACK_HOSTS as LOOPBACK_HOSTS
from strandline.settings.fields import (
    PatternList,
    PositiveInt,
    PositiveSeconds,
    RateLimit,
    Section,
    TopicRateLimits,
)
from strandline.settings.http import HttpSettings as HttpSettings
from strandline.settings.kafka import KafkaSettings as KafkaSettings
from strandline.settings.log import LogSettings as LogSettings
from strandline.settings.read import ReadSettings
from strandline.settings.retention import RetentionSettings
from strandline.settings.spool import SpoolSettings


class NodeSettings(Section):
    """The node's own state."""

    data_dir: Path = Field(
        default=Path("strandline-data"),
        description="Directory of the metadata log and its view; made by `strandline format`.",
    )


class TopicSettings(Section):
    """Topics that are tiered; internal and compacted topics never are."""

    include: PatternList = Field(
        default=[],
        description="Topic names or shell patterns (`orders`, `logs.*`). Empty: nothing is tiered.",
    )
    exclude: PatternList = Field(default=[], description="Patterns that win over `include`.")
    mark_deleted: bool = Field(
        default=False,
        description="Mark a topic's tiered data for deletion, with a grace of 7 days, once its "
        "topic id is unknown to all brokers, two at least, for ten minutes.",
    )


class StoreSettings(Section):
    """One object store; `[stores.NAME]`."""

    kind: Literal["s3", "filesystem"] = Field(description="`s3` or `filesystem`.")
    bucket: str = Field(default="", max_length=255, description="Bucket (s3).")
    prefix: str = Field(
        default="", max_length=512, description="Prepended to every key; write the slash yourself."
    )
    endpoint_url: str | None = Field(
        default=None, description="Address of an S3-compatible store; empty for AWS."
    )
    region: str = Field(default="us-east-1", description="Region (s3).")
    path: Path | None = Field(
        default=None,
        description="Directory (filesystem). It may be a symbolic link; below it none is followed: "
        "a call that meets one is refused.",
    )
    credentials_file: Path | None = Field(
        default=None,
        description="AWS shared credentials file. Without one the usual AWS lookup applies. Keys "
        "that change are read again, also on a refusal and on SIGHUP.",
    )
    profile: str = Field(default="default", description="Profile in the credentials file.")
    addressing_style: Literal["auto", "path", "virtual"] = Field(
        default="auto", description="Place of the bucket's name in requests (s3)."
    )
    sign_payloads: bool = Field(
        default=False,
        description="Sign a SHA-256 of each body too, for stores that refuse UNSIGNED-PAYLOAD.",
    )
    compatibility: list[Literal["delete-md5", "single-deletes", "no-checksums"]] = Field(
        default=[],
        max_length=8,
        description="Parts of S3 that the store lacks, as `doctor` reports them: `delete-md5`, "
        "`single-deletes`, `no-checksums`; see OPERATIONS.",
    )
    ca_file: Path | None = Field(default=None, description="PEM bundle to trust for https (s3).")
    aiven_keys: dict[str, Path] = Field(
        default={},
        max_length=100,
        description="Id of a key pair -> PEM file of its RSA private key, for segments that "
        "Aiven's plug-in encrypted. The file is read for each such segment.",
    )
    connect_timeout_s: PositiveSeconds = Field(
        default=5.0, description="Deadline to open a connection."
    )
    read_timeout_s: PositiveSeconds = Field(
        default=30.0, description="Longest silence on a connection."
    )
    connections_max: PositiveInt = Field(default=32, description="Open connections a process.")
    attempts_max: PositiveInt = Field(default=5, description="Most attempts of one request.")

    @model_validator(mode="after")
    def _complete(self) -> StoreSettings:
        if self.kind == "s3" and not self.bucket:
            raise ValueError('kind = "s3" needs `bucket`')
        if self.kind == "filesystem" and self.path is None:
            raise ValueError('kind = "filesystem" needs `path`')
        return self


class CopierSettings(Section):
    """The limits and timing of copies."""

    interval_s: PositiveSeconds = Field(
        default=5.0, description="Pause between two scans of the log directories."
    )
    leadership_interval_s: PositiveSeconds = Field(
        default=0.5, description="Least pause between two requests to the broker for the leaders."
    )
    parallel_max: PositiveInt = Field(default=4, description="Copies under way at once, in all.")
    per_log_dir_max: PositiveInt = Field(
        default=4, description="Of these, copies from one log directory, usually one disk."
    )
    part_bytes: Annotated[int, Field(ge=5 * 2**20, le=2**30)] = Field(
        default=12 * 2**20, description="Size of one multipart part, in bytes."
    )
    parts_parallel: Annotated[int, Field(ge=1, le=64)] = Field(
        default=2, description="Parts of one segment under way at once."
    )
    batch_bytes_max: Annotated[int, Field(ge=2**20, le=2**31 - 1)] = Field(
        default=128 * 2**20,
        description="Largest record batch that is copied, held whole in a worker's memory; also "
        "the largest, decompressed, that is searched for an offset by time.",
    )
    upload_deadline_s: PositiveSeconds = Field(
        default=900.0,
        description="Deadline of a copy; one that takes longer is cancelled and tried again.",
    )
    upload_margin_s: PositiveSeconds = Field(
        default=30.0,
        description="Wait after a dead attempt's deadline, or a finished segment's mark, before "
        "its objects are listed and deleted a last time.",
    )
    takeover_settle_s: PositiveSeconds = Field(
        default=90.0,
        description="Wait after a prefix was taken over, for the last requests of its earlier "
        "nodes.",
    )
    backoff_base_s: PositiveSeconds = Field(
        default=1.0, description="Pause after the first failed copy of a partition; doubles."
    )
    backoff_max_s: PositiveSeconds = Field(default=300.0, description="The longest such pause.")
    mend_deadline_s: PositiveSeconds = Field(
        default=300.0,
        description="Deadline to fetch the missing part of a damaged segment, or as much of it as "
        "`mend_bytes_max` allows, from other replicas; `repair` gives each of them "
        "this deadline.",
    )
    mend_bytes_max: PositiveInt = Field(
        default=2**30,
        description="Bytes fetched at once of a damaged segment from each replica, on disk; a "
        "larger hole is fetched and copied in several steps.",
    )


class LimitSettings(Section):
    """The rate limits of traffic with the stores. HTTP requests may change them while the node
    runs.
    """

    copy_bytes_per_s: RateLimit = Field(
        default=0, description="Bytes a second to the stores, all copies together; 0: no limit."
    )
    read_bytes_per_s: RateLimit = Field(
        default=0, description="Bytes a second from the stores, all reads together; 0: no limit."
    )
    topic_copy_bytes_per_s: TopicRateLimits = Field(
        default={}, description="The same for single topics, by name, within `copy_bytes_per_s`."
    )
    topic_read_bytes_per_s: TopicRateLimits = Field(
        default={}, description="The same for single topics, by name, within `read_bytes_per_s`."
    )


class MetadataSettings(Section):
    """The metadata log and its view."""

    view_flush_records: PositiveInt = Field(
        default=20_000, description="Records applied between two flushes of the view."
    )
    snapshot_records: PositiveInt = Field(
        default=200_000,
        description="Records between two snapshots of the log; 128 MiB of records cause one, too.",
    )
    propose_deadline_s: PositiveSeconds = Field(
        default=10.0, description="Time that a write waits for its outcome."
    )
    snapshot_upload_interval_s: PositiveSeconds = Field(
        default=3_600.0,
        description="Greatest age of the metadata's newest snapshot in the store.",
    )
    snapshot_upload_check_s: PositiveSeconds = Field(
        default=60.0, description="Pause between two checks for a snapshot to upload."
    )
    switch_deadline_s: PositiveSeconds = Field(
        default=120.0,
        description="Deadline of a switch of a move from Kafka's own metadata topic, or of its way "
        "back; after it the move returns to the phase before.",
    )
    snapshots_uploaded_max: PositiveInt = Field(
        default=24, description="Number of snapshots kept in the store, the newest."
    )


class AuditSettings(Section):
    """The audit log of this node's deletions and moves, in its data directory."""

    file_bytes_max: Annotated[int, Field(ge=65_536, le=2**30)] = Field(
        default=8 * 2**20, description="Size at which the audit begins its next file."
    )
    files_max: Annotated[int, Field(ge=2, le=10_000)] = Field(
        default=16, description="Number of files of the audit that are kept, the newest."
    )


class CollectorSettings(Section):
    """The collection of garbage, objects of deleted segments."""

    delete_max_percent: Annotated[float, Field(ge=0, le=100)] = Field(
        default=1.0,
        description="Largest share of the tier's objects that a pass deletes; a pass with more "
        "stops, unless their number is accepted.",
    )


class RepairSettings(Section):
    """The repair of damaged segments from an intact copy."""

    automatic: bool = Field(
        default=False,
        description="Repair segments that reads or scrubs found damaged without a request.",
    )
    interval_s: PositiveSeconds = Field(
        default=300.0, description="Pause between two passes of such repairs."
    )
    per_hour_max: PositiveInt = Field(
        default=4, description="Most segments that a node checks by itself within an hour."
    )
    free_bytes_min: PositiveInt = Field(
        default=2**30,
        description="Bytes kept free on the disk of `node.data_dir`, where a segment is put "
        "together.",
    )


class HoldSettings(Section):
    """The hold, which keeps segments from the broker's local retention until they are copied."""

    dirs: Annotated[list[Path], Field(max_length=64)] | None = Field(
        default=None,
        description="Directories for hard links, one on each mount of `kafka.log_dirs` and none "
        "inside a log directory. None: `strandline-hold` beside the first log "
        "directory of each mount, if `kafka.broker` is set. `[]`: nothing is held.",
    )
    bytes_max: PositiveInt = Field(
        default=64 * 2**30,
        description="Most bytes held in each of them that the broker has already deleted; the "
        "oldest are released.",
    )
    free_bytes_min: PositiveInt = Field(
        default=16 * 2**30,
        description="Bytes kept free on each mount; for them the oldest held segments are "
        "released.",
    )


class QuorumSettings(Section):
    """The metadata quorum, and the connections between its nodes."""

    listen: str = Field(
        default="",
        description="`host:port` where the other nodes and Kafka's tools connect. Empty: no "
        "listener, for a quorum of this node alone.",
    )
    advertised: str = Field(
        default="",
        description="`host:port` by which the other nodes reach this one; `listen` by default. If "
        "it is set, a voter that the quorum knows by a different address corrects that "
        "at its start.",
    )
    bootstrap: Annotated[list[str], Field(max_length=64)] = Field(
        default=[],
        description="`id@host:port` of nodes to ask for the leader, for a node that joins.",
    )
    secret_file: Path | None = Field(
        default=None,
        description="File with the secret that the nodes of the quorum share; the same on each.",
    )
    tls_certificate_file: Path | None = Field(
        default=None, description="PEM certificate chain of this node, for listener and peers."
    )
    tls_key_file: Path | None = Field(default=None, description="PEM key of that certificate.")
    tls_ca_file: Path | None = Field(
        default=None,
        description="PEM bundle of the authorities that signed the other nodes' certificates; no "
        "other authority is trusted then. None: those of the machine.",
    )
    peer_names: Annotated[list[str], Field(max_length=64)] = Field(
        default=[],
        description="Names in the certificates of nodes that may write, if `secret_file` is not "
        "used.",
    )
    readers: Literal["anyone", "peers"] = Field(
        default="anyone",
        description="Clients that may read the metadata topic on the listener: `anyone` (Kafka's "
        "tools) or `peers` only.",
    )
    election_timeout_ms: Annotated[int, Field(ge=50, le=600_000)] = Field(
        default=1_000, description="Kafka's `controller.quorum.election.timeout.ms`."
    )
    fetch_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = Field(
        default=2_000, description="Kafka's `controller.quorum.fetch.timeout.ms`."
    )
    connections_max: PositiveInt = Field(
        default=256,
        description="Most open connections; as many TLS handshakes may be under way, too.",
    )
    anonymous_requests_per_s_max: PositiveInt = Field(
        default=1_000,
        description="Requests a second of all clients that do not log in; a long one counts as "
        "several. The first 8 of a connection do not count.",
    )
    anonymous_answer_bytes_max: Annotated[int, Field(ge=1 << 20)] = Field(
        default=32 << 20,
        description="Bytes of answers held for all clients that do not log in, until they take "
        "them.",
    )
    ready_silence_max_s: PositiveSeconds = Field(
        default=10.0,
        description="Time without an answer of a leader after which a node is not ready; reads go "
        "on.",
    )
    ready_lag_max: PositiveInt = Field(
        default=10_000,
        description="Most committed offsets that the view of a ready node lacks.",
    )

    @model_validator(mode="after")
    def _safe(self) -> QuorumSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("set both tls_certificate_file and tls_key_file, or neither")
        if not self.listen:
            return self
        host = self.listen.rpartition(":")[0].strip("[]")
        by_certificate = self.peer_names and self.tls_ca_file and self.tls_certificate_file
        if self.secret_file is None and not by_certificate:
            raise ValueError(
                "the quorum's listener has to authenticate its peers: set secret_file, or "
                "peer_names with tls_certificate_file, tls_key_file and tls_ca_file"
            )
        if host not in LOOPBACK_HOSTS and self.tls_certificate_file is None:
            raise ValueError(
                "beyond loopback the quorum needs TLS: set tls_certificate_file, tls_key_file and "
                "tls_ca_file"
            )
        return self


class WorkerSettings(Section):
    """The worker processes, which read, upload and download segments."""

    count: Annotated[int, Field(ge=1, le=64)] = Field(default=1, description="Worker processes.")
    hang_deadline_s: PositiveSeconds = Field(
        default=60.0, description="Silence after which a worker is killed and started anew."
    )
    chunk_cache_bytes: Annotated[int, Field(ge=0, le=2**40)] = Field(
        default=64 * 2**20,
        description="Bytes of verified chunks that each worker caches for later readers; 0: no "
        "cache.",
    )
    read_ahead_bytes: Annotated[int, Field(ge=0, le=2**40)] = Field(
        default=32 * 2**20,
        description="Of these, bytes fetched ahead of readers that take a segment in consecutive "
        "ranges, as brokers do: 16 MiB for each at most, less for many; 0: none.",
    )


class NodesSettings(Section):
    """The nodes of a cluster, and the fencing of silent ones."""

    silence_max_s: Annotated[float, Field(ge=1, le=3_600)] = Field(
        default=10.0,
        description="Time without a fetch of the metadata log (and at least twice "
        "`quorum.fetch_timeout_ms`) after which the quorum's leader fences a node: a "
        "problem in `status`, and clients are not sent to its read listener. Its "
        "claims remain valid.",
    )


class Settings(BaseSettings):
    """All settings of a node, as `settings.loading.load_settings` makes them."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    node: NodeSettings = NodeSettings()
    kafka: KafkaSettings = KafkaSettings()
    topics: TopicSettings = TopicSettings()
    default_store: str = Field(
        default="main", description="Name of the store that new copies are written to."
    )
    stores: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,15}$")], StoreSettings] = {}
    copier: CopierSettings = CopierSettings()
    limits: LimitSettings = LimitSettings()
    metadata: MetadataSettings = MetadataSettings()
    audit: AuditSettings = AuditSettings()
    collector: CollectorSettings = CollectorSettings()
    retention: RetentionSettings = RetentionSettings()
    repair: RepairSettings = RepairSettings()
    hold: HoldSettings = HoldSettings()
    spool: SpoolSettings = SpoolSettings()
    quorum: QuorumSettings = QuorumSettings()
    worker: WorkerSettings = WorkerSettings()
    http: HttpSettings = HttpSettings()
    read: ReadSettings = ReadSettings()
    nodes: NodesSettings = NodesSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the given values: the loader reads the sources itself, to know each origin."""
        return (init_settings,)

    @model_validator(mode="after")
    def _brokers_can_be_asked(self) -> Settings:
        if self.retention.source == "topic" and not self.kafka.broker:
            raise ValueError(
                'retention.source = "topic" needs the topics\' configs from the broker: set '
                'kafka.broker, or retention.source = "policy"'
            )
        if self.topics.mark_deleted and not self.kafka.broker:
            raise ValueError("topics.mark_deleted needs a broker: set kafka.broker, or remove it")
        if self.read.listen:
            self.kafka.check_readable(self.read)
        return self

    @property
    def holds_beside(self) -> bool:
        """True if the hold directories are beside the log directories: no setting names them, and
        there is a broker, whose retention deletes segments.
        """
        return self.hold.dirs is None and bool(self.kafka.log_dirs and self.kafka.broker)

    @model_validator(mode="after")
    def _default_store_exists(self) -> Settings:
        if self.stores and self.default_store not in self.stores:
            known = ", ".join(sorted(self.stores))
            raise ValueError(
                f"default_store {self.default_store!r} is not in [stores]: name one of {known}"
            )
        return self
