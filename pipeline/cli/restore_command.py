"""`strandline pipeline restore`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from pipeline.cli.options import key_values, typed_key_values
from pipeline.cli.running import Job, runs_job
from pipeline.jobs.restore import IntoKafka, IntoLogDirs, run
from pipeline.restore.kafka_target import KafkaAddress
from pipeline.restore.ranges import Wanted
from strandline.cli.exit_codes import ExitCode

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The tiered topic.")]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", help="Only this partition; may be repeated."),
]
StartingOffsetsOption = Annotated[
    str | None,
    typer.Option("--starting-offsets", help="earliest, or JSON as for the data source."),
]
EndingOffsetsOption = Annotated[
    str | None,
    typer.Option("--ending-offsets", help="latest, or JSON as for the data source; exclusive."),
]
StartingTimestampOption = Annotated[
    str | None,
    typer.Option("--starting-timestamp", help="From the first record of this time on, ms."),
]
EndingTimestampOption = Annotated[
    str | None,
    typer.Option("--ending-timestamp", help="Up to the first record of this time, ms; exclusive."),
]
SkipLostOption = Annotated[
    bool,
    typer.Option("--skip-lost", help="Skip offsets that are in no segment (--bootstrap only)."),
]
TopicAsOption = Annotated[
    str | None, typer.Option("--topic-as", help="A different name for the restored topic.")
]
BootstrapOption = Annotated[
    str | None,
    typer.Option("--bootstrap", help="Produce to the Kafka cluster with these brokers, HOST:PORT."),
]
KafkaConfigOption = Annotated[
    list[str] | None,
    typer.Option("--kafka-config", help="Property of librdkafka `key=value`; may be repeated."),
]
KafkaConfigFileOption = Annotated[
    Path | None,
    typer.Option("--kafka-config-file", help="File of such properties, one a line, for passwords."),
]
ProducerConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--producer-config", help="Property of the producer only, such as compression.type=zstd."
    ),
]
TopicConfigOption = Annotated[
    list[str] | None,
    typer.Option("--topic-config", help="Config of the topic, if the restore creates it."),
]
MappingOption = Annotated[
    Path | None,
    typer.Option("--mapping", help="Write source and target offsets to this file, as CSV."),
]
CompareOption = Annotated[
    bool, typer.Option("--compare/--no-compare", help="Read the target back and compare.")
]
LogDirsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--into-log-dirs",
        help="Write into this log directory of a stopped broker; may be repeated.",
    ),
]
TopicIdOption = Annotated[
    str | None,
    typer.Option("--topic-id", help="The topic's id in the cluster of the log directories."),
]


ONLY_BY_PRODUCING = (
    "--skip-lost",
    "--kafka-config",
    "--kafka-config-file",
    "--producer-config",
    "--topic-config",
    "--mapping",
    "--no-compare",
)


@runs_job
def restore_command(
    job: Job,
    topic: TopicArgument,
    partition: PartitionOption = None,
    starting_offsets: StartingOffsetsOption = None,
    ending_offsets: EndingOffsetsOption = None,
    starting_timestamp: StartingTimestampOption = None,
    ending_timestamp: EndingTimestampOption = None,
    skip_lost: SkipLostOption = False,
    topic_as: TopicAsOption = None,
    bootstrap: BootstrapOption = None,
    kafka_config: KafkaConfigOption = None,
    kafka_config_file: KafkaConfigFileOption = None,
    producer_config: ProducerConfigOption = None,
    topic_config: TopicConfigOption = None,
    compare: CompareOption = True,
    mapping: MappingOption = None,
    into_log_dirs: LogDirsOption = None,
    topic_id: TopicIdOption = None,
) -> ExitCode:
    """Restore a topic into Kafka: a cluster, or a stopped broker's log directories.

    All of it or a range, exactly once, however often it is killed and run again. Records produced
    to a cluster get new offsets (`--mapping`); in log directories they keep theirs.

    Example: `strandline pipeline restore orders --store s3://bucket/tier --bootstrap kafka:9092`
    """
    offsets = (starting_offsets, ending_offsets)
    times = (starting_timestamp, ending_timestamp)
    wanted = Wanted(topic, tuple(partition or ()), *offsets, *times, skip_lost)
    by_producing = (skip_lost, kafka_config, kafka_config_file, producer_config, topic_config)
    _check_ways(bootstrap, into_log_dirs, (*by_producing, mapping, not compare), topic_id)
    options: IntoKafka | IntoLogDirs
    if bootstrap is None:
        id_ = None if topic_id is None else Uuid.parse(topic_id)
        options = IntoLogDirs(wanted, tuple(into_log_dirs or ()), topic_as, id_)
    else:
        options = IntoKafka(
            wanted,
            _address(bootstrap, kafka_config, kafka_config_file),
            topic_as,
            typed_key_values(producer_config, option="--producer-config"),
            key_values(topic_config, option="--topic-config"),
            compare,
            mapping,
        )
    with job.context("restore") as context:
        found = run(context, options)
    return job.finish(found)


def _check_ways(
    bootstrap: str | None,
    log_dirs: Sequence[Path] | None,
    by_producing: Sequence[object],
    topic_id: str | None,
) -> None:
    """Raise InvalidRequest unless one way is chosen, without options of only the other."""
    if (bootstrap is None) == (not log_dirs):
        raise InvalidRequest("give either --bootstrap or --into-log-dirs")
    if bootstrap is None:
        given = dict(zip(ONLY_BY_PRODUCING, by_producing, strict=True))
    else:
        given = {"--topic-id": topic_id}
    other = "--bootstrap" if bootstrap is None else "--into-log-dirs"
    for option, value in given.items():
        if value:
            raise InvalidRequest(f"only with {other}: leave it out", field=option)


def _address(bootstrap: str, given: list[str] | None, file: Path | None) -> KafkaAddress:
    properties = {**_properties(file), **typed_key_values(given, option="--kafka-config")}
    return KafkaAddress({**properties, "bootstrap.servers": bootstrap})


def _properties(path: Path | None) -> dict[str, str]:
    """Reads a file with one `key=value` a line and `#` comments. Values are never shown."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"{path} can't be read: {error}", field="--kafka-config-file"
        ) from None
    told = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    pairs = key_values(told, option="--kafka-config-file")
    return {key.strip(): value.strip() for key, value in pairs.items()}
