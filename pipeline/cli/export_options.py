"""The options of `strandline pipeline export`, and their translation for the job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, get_args

import typer

from kafka_formats.errors import InvalidRequest
from pipeline.cli.options import refuse_password, typed_key_values
from pipeline.export.bad_records import OnError
from pipeline.export.export_plan import OffsetRange
from pipeline.export.schema_registry import RegistryAddress
from pipeline.export.value_decoding import FIELDS, Format, ValueFormats
from pipeline.jobs.export import Codec, ExportOptions, TableFormat
from pipeline.source.options import Subscription, checked_pattern
from rlm.data_plane.read_request import Isolation

REGISTRY_USER_ENVIRONMENT = "STRANDLINE_REGISTRY_USER"
MIB = 1024 * 1024

ToOption = Annotated[
    str,
    typer.Option(help="s3://bucket/folder or an absolute path; for Iceberg NAMESPACE.TABLE."),
]
TopicsOption = Annotated[
    list[str] | None, typer.Option("--topic", help="A topic; may be repeated.")
]
TopicPatternOption = Annotated[
    str | None,
    typer.Option(help="Instead of --topic: all topics that match this regular expression."),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", help="Only this partition of the topic; may be repeated."),
]
TableFormatOption = Annotated[str, typer.Option("--format", help="parquet, delta or iceberg.")]
FirstOffsetOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Export records from this offset on that are not exported yet. Default: from where "
        "the last commit ended, at first from the beginning.",
    ),
]
LastOffsetOption = Annotated[
    int | None, typer.Option(min=0, help="Up to this offset, inclusive. Default: all.")
]
NameOption = Annotated[
    str, typer.Option(help="Identity of the export: one table can take several.")
]
PartitionByDayOption = Annotated[
    bool,
    typer.Option("--partition-by-day", help="Partition by the UTC day of the record's timestamp."),
]
IsolationOption = Annotated[str, typer.Option(help="read_committed or read_uncommitted.")]
CodecOption = Annotated[str, typer.Option(help="zstd, snappy, gzip, lz4 or none.")]
LevelOption = Annotated[
    int | None,
    typer.Option(help="Compression level. Default: 1 for zstd, else the codec's own."),
]
FileMibOption = Annotated[int, typer.Option(min=1, help="Approximate size of a file.")]
TaskMibOption = Annotated[int, typer.Option(min=1, help="Approximate log bytes that a task reads.")]
CommitGibOption = Annotated[int, typer.Option(min=1, help="Approximate log bytes in one commit.")]
CatalogOption = Annotated[str, typer.Option(help="Iceberg: name of the catalog.")]
CatalogPropertiesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--catalog-property",
        help="Iceberg: `key=value` of the catalog, such as `uri=...`; may be repeated. "
        "Others come from .pyiceberg.yaml or PYICEBERG_ variables.",
    ),
]
KeyFormatOption = Annotated[
    str, typer.Option(help="binary, or by the registry avro, json, protobuf.")
]
ValueFormatOption = Annotated[
    str, typer.Option(help="binary, or by the registry avro, json, protobuf.")
]
RegistryOption = Annotated[
    str | None, typer.Option(help="Address of a Confluent-compatible schema registry.")
]
RegistryCaFileOption = Annotated[
    str | None, typer.Option(help="PEM bundle to trust for the registry.")
]
KeySubjectOption = Annotated[str | None, typer.Option(help="Default: TOPIC-key.")]
ValueSubjectOption = Annotated[str | None, typer.Option(help="Default: TOPIC-value.")]
KeySchemaVersionOption = Annotated[int | None, typer.Option(help="Default: the latest.")]
ValueSchemaVersionOption = Annotated[int | None, typer.Option(help="Default: the latest.")]
OnErrorOption = Annotated[
    str, typer.Option(help="On a record that can't be exported: fail, skip or dead-letter.")
]
DeadLettersToOption = Annotated[
    str | None, typer.Option(help="Where dead letters go. Default: beside --to.")
]
AivenKeysOption = Annotated[
    list[str] | None,
    typer.Option("--aiven-key", help="PEM file for segments that Aiven's plug-in encrypted."),
]


def export_options(given: Mapping[str, Any]) -> ExportOptions:
    """The command's options by their parameters' names; InvalidRequest names a wrong one."""
    codec, level = _one_of(given["codec"], Codec, "--codec"), given["level"]
    return ExportOptions(
        to=given["to"],
        table_format=_one_of(given["table_format"], TableFormat, "--format"),
        subscription=_subscription(
            given["topics"] or [], given["topic_pattern"], given["partitions"]
        ),
        offsets=_offsets(given["first_offset"], given["last_offset"]),
        name=given["name"],
        by_day=given["partition_by_day"],
        isolation=_isolation(given["isolation"]),
        aiven_keys=tuple(given["aiven_keys"] or ()),
        codec=codec,
        level=1 if level is None and codec == "zstd" else level,
        file_bytes=given["file_mib"] * MIB,
        task_bytes=given["task_mib"] * MIB,
        commit_bytes=given["commit_gib"] * 1024 * MIB,
        catalog=given["catalog"],
        catalog_properties=typed_key_values(
            given["catalog_properties"], option="--catalog-property"
        ),
        formats=_formats(given),
        on_error=_one_of(given["on_error"], OnError, "--on-error"),
        dead_letters_to=given["dead_letters_to"],
    )


def _formats(given: Mapping[str, Any]) -> ValueFormats:
    registry = given["registry"]
    if registry is not None:
        refuse_password(registry, "the address", option="--registry")
        user = os.environ.get(REGISTRY_USER_ENVIRONMENT)
        registry = RegistryAddress(registry, user, given["registry_ca_file"])
    return ValueFormats(
        key=_one_of(given["key_format"], Format, "--key-format"),
        value=_one_of(given["value_format"], Format, "--value-format"),
        registry=registry,
        subjects={each: text for each in FIELDS if (text := given[f"{each}_subject"]) is not None},
        versions={
            each: one for each in FIELDS if (one := given[f"{each}_schema_version"]) is not None
        },
    )


def _subscription(
    topics: list[str], pattern: str | None, partitions: list[int] | None
) -> Subscription:
    if (pattern is None) == (not topics):
        raise InvalidRequest("give --topic, once or more, or --topic-pattern", field="--topic")
    if pattern is not None:
        checked_pattern(pattern, option="--topic-pattern")
    if not partitions:
        return Subscription(tuple(topics), pattern)
    if len(topics) != 1:
        raise InvalidRequest("needs exactly one topic: give --topic once", field="--partition")
    return Subscription(assign={topics[0]: tuple(partitions)})


def _offsets(first: int | None, last: int | None) -> OffsetRange:
    if first is not None and last is not None and last < first:
        raise InvalidRequest(f"{last} is below --first-offset ({first})", field="--last-offset")
    return OffsetRange(first, last)


def _one_of(given: str, wanted: Any, option: str) -> Any:
    if given not in get_args(wanted):
        raise InvalidRequest(
            f"must be one of {', '.join(get_args(wanted))}, not {given[:40]!r}", field=option
        )
    return given


def _isolation(given: str) -> Isolation:
    try:
        return Isolation(given)
    except ValueError:
        raise InvalidRequest(
            f"must be read_committed or read_uncommitted, not {given[:40]!r}", field="--isolation"
        ) from None
