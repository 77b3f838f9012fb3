"""`strandline pipeline export`."""

from __future__ import annotations

from pipeline.cli.export_options import (
    AivenKeysOption,
    CatalogOption,
    CatalogPropertiesOption,
    CodecOption,
    CommitGibOption,
    DeadLettersToOption,
    FileMibOption,
    FirstOffsetOption,
    IsolationOption,
    KeyFormatOption,
    KeySchemaVersionOption,
    KeySubjectOption,
    LastOffsetOption,
    LevelOption,
    NameOption,
    OnErrorOption,
    PartitionByDayOption,
    PartitionsOption,
    RegistryCaFileOption,
    RegistryOption,
    TableFormatOption,
    TaskMibOption,
    ToOption,
    TopicPatternOption,
    TopicsOption,
    ValueFormatOption,
    ValueSchemaVersionOption,
    ValueSubjectOption,
    export_options,
)
from pipeline.cli.running import Job, runs_job
from pipeline.jobs import export
from pipeline.read.segment_slice import aiven_keys_in
from strandline.cli.exit_codes import ExitCode


@runs_job
def export_command(
    job: Job,
    to: ToOption,
    topics: TopicsOption = None,
    topic_pattern: TopicPatternOption = None,
    partitions: PartitionsOption = None,
    table_format: TableFormatOption = "parquet",
    first_offset: FirstOffsetOption = None,
    last_offset: LastOffsetOption = None,
    name: NameOption = "export",
    partition_by_day: PartitionByDayOption = False,
    isolation: IsolationOption = "read_committed",
    codec: CodecOption = "zstd",
    level: LevelOption = None,
    file_mib: FileMibOption = 256,
    task_mib: TaskMibOption = 128,
    commit_gib: CommitGibOption = 256,
    catalog: CatalogOption = "default",
    catalog_properties: CatalogPropertiesOption = None,
    key_format: KeyFormatOption = "binary",
    value_format: ValueFormatOption = "binary",
    registry: RegistryOption = None,
    registry_ca_file: RegistryCaFileOption = None,
    key_subject: KeySubjectOption = None,
    value_subject: ValueSubjectOption = None,
    key_schema_version: KeySchemaVersionOption = None,
    value_schema_version: ValueSchemaVersionOption = None,
    on_error: OnErrorOption = "fail",
    dead_letters_to: DeadLettersToOption = None,
    aiven_keys: AivenKeysOption = None,
) -> ExitCode:
    """Append tiered records to a table: Parquet, Delta or Iceberg, every offset once.

    Run it again for newly tiered records, and after it was killed at any moment.

    Example: `strandline pipeline export --store s3://tier --topic orders --to s3://lake/orders
    --format delta --partition-by-day`
    """
    aiven_keys = aiven_keys or list(aiven_keys_in(job.tier))
    wanted = export_options(locals())
    export.check_options(wanted, job.tier)
    with job.context("export") as context:
        found = export.run(context, wanted)
    return job.finish(found)
