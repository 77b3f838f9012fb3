"""Make tests/data/kafka-4.3.0: log directories of a stock Kafka, and what a consumer read.

    .venv/bin/python -m tests.capture.capture_kafka_data

needs Java 17 and Maven, and takes about a minute. The broker is bounced between rounds of
producing, so that every partition has several leader epochs. `tests/data/README.md` says what
each topic is for.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from pathlib import Path

from tests.capture.workload import (
    TOPICS,
    leave_a_transaction_open,
    produce_round,
    produce_with_java,
)
from tests.real.kafka import KAFKA_VERSION, KafkaBroker
from tests.real.kafka_clients import consume_all, log_bounds
from tests.real.toolbox import REPOSITORY

TARGET = REPOSITORY / "tests" / "data" / f"kafka-{KAFKA_VERSION}"
ROUNDS = 4
HEAD_CUT_AFTER_ROUND = 2
KEPT_FILES = (
    ".kafka_cleanshutdown",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
OVERRIDES = {
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "500",
    "transaction.max.timeout.ms": "900000",
}


def main() -> None:
    """Capture everything anew."""
    with tempfile.TemporaryDirectory() as scratch:
        captured = Path(scratch) / "captured"
        broker = KafkaBroker(Path(scratch) / "broker", overrides=OVERRIDES)
        try:
            broker.format()
            broker.start()
            _produce_everything(broker)
            open_transaction = leave_a_transaction_open(broker)
            _write_expected(broker, captured / "expected")
            broker.stop()
            del open_transaction
        finally:
            broker.close()
        _copy_log_dir(broker.log_dir, captured / "log-dir")
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(captured, TARGET)
    total = sum(path.stat().st_size for path in TARGET.rglob("*") if path.is_file())
    print(f"{TARGET.relative_to(REPOSITORY)}: {total // 1024} KiB")


def _produce_everything(broker: KafkaBroker) -> None:
    for topic, spec in TOPICS.items():
        broker.create_topic(topic, partitions=spec.partitions, config=spec.config)
    for round_number in range(ROUNDS):
        if round_number > 0:
            broker.restart()
        produce_round(broker, round_number)
        if round_number == 0:
            produce_with_java(broker)
        if round_number == HEAD_CUT_AFTER_ROUND:
            _cut_heads(broker)
    start, _ = log_bounds(broker.bootstrap, "events", 1)
    broker.delete_records("events", 1, start + 20)
    _compact(broker)


def _cut_heads(broker: KafkaBroker) -> None:
    """The partitions of `events` lose their oldest segments to retention."""
    before = len(broker.segment_files("events", 0))
    broker.alter_topic("events", {"retention.bytes": "8192"})
    broker.wait_until(lambda: len(broker.segment_files("events", 0)) < before, "local retention")
    broker.alter_topic("events", {"retention.bytes": "-1"})


def _compact(broker: KafkaBroker) -> None:
    """Let the cleaner leave offset gaps in profiles-0, then make it an ordinary topic."""
    first = broker.segment_files("profiles", 0)[0]
    before = first.stat().st_size
    broker.alter_topic("profiles", {"cleanup.policy": "compact"})
    broker.wait_until(
        lambda: not first.exists() or first.stat().st_size < before, "the cleaner to compact"
    )
    broker.alter_topic("profiles", {"cleanup.policy": "delete"})
    folder = first.parent
    broker.wait_until(lambda: not any(folder.glob("*.deleted")), "the end of the old segments")


def _write_expected(broker: KafkaBroker, folder: Path) -> None:
    folder.mkdir(parents=True)
    partitions = {}
    for topic, spec in TOPICS.items():
        for partition in range(spec.partitions):
            name = f"{topic}-{partition}"
            _write_records(broker, topic, partition, folder / f"{name}.jsonl.gz")
            start, end = log_bounds(broker.bootstrap, topic, partition)
            _, stable = log_bounds(broker.bootstrap, topic, partition, isolation="read_committed")
            partitions[name] = {
                "log_start_offset": start,
                "log_end_offset": end,
                "last_stable_offset": stable,
            }
    (folder / "partitions.json").write_text(json.dumps(partitions, indent=1) + "\n")


def _write_records(broker: KafkaBroker, topic: str, partition: int, path: Path) -> None:
    """One line a record: as read_uncommitted saw it, and whether read_committed saw it too."""
    everything = consume_all(broker.bootstrap, topic, partition)
    committed = consume_all(broker.bootstrap, topic, partition, isolation="read_committed")
    seen = set(committed)
    assert [record for record in everything if record in seen] == committed
    lines = [
        json.dumps({**record.as_json(), "committed": record in seen}) + "\n"
        for record in everything
    ]
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def _copy_log_dir(log_dir: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for name in KEPT_FILES:
        shutil.copyfile(log_dir / name, target / name)
    for topic, spec in TOPICS.items():
        for partition in range(spec.partitions):
            shutil.copytree(log_dir / f"{topic}-{partition}", target / f"{topic}-{partition}")
    shutil.copytree(log_dir / "__consumer_offsets-0", target / "__consumer_offsets-0")


if __name__ == "__main__":
    main()
