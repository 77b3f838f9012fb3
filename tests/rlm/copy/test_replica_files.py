"""A replica answers from one file: the last batch of one may claim what is in the next."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_client.replica_answers import Batches, OutOfRange
from kafka_formats.batch_scan import scan
from kafka_formats.record_batch import parse_header
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from tests.rlm.copy.test_mending import WHOLE, outcome, rewrite
from tests.rlm.copy.test_turned_base_offsets import claims
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.replicas import Cluster, remove


@dataclass(slots=True)
class Files(Cluster):
    """Brokers with `files` by node id and base offset. The answer begins with the first batch that
    reaches the offset, in the file whose name says that it is there, and ends where the file does.
    """

    files: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange:
        self.asked.append((node_id, offset))
        files = self.files[node_id]
        if not 0 <= offset <= 39:
            return OutOfRange()
        named = max(base for base in files if base <= offset)
        for base in sorted(each for each in files if each >= named):
            for at, batch in enumerate(files[base]):
                if parse_header(batch, 0, source="test", position=0).last_offset >= offset:
                    return Batches(b"".join(files[base][at:])[: self.answer_bytes], 40)
        return Batches(b"", 40)


def written(tmp_path: Path, *bases: int) -> tuple[KafkaLog, dict[int, bytes]]:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(*bases, 40, end=45)
    return log, {
        batch.header.base_offset: bytes(batch.data)
        for base in bases
        for batch in scan(log.log_bytes(base), source="test")
    }


def replicas(
    batches: dict[int, bytes], bases: list[int], gone: int, offset: int, turned_to: int
) -> Files:
    """Broker 1 is this node's, without the file `gone`. In broker 2 one batch is turned."""

    def files(turned: dict[int, bytes]) -> dict[int, list[bytes]]:
        ends = [*bases[1:], 40]
        return {
            base: [turned.get(each, batches[each]) for each in range(base, end)]
            for base, end in zip(bases, ends, strict=True)
        }

    mine = files({})
    del mine[gone]
    return Files(
        {1: (), 2: ()}, batches, answer_bytes=100_000,
        files={1: mine, 2: files({offset: claims(batches[offset], turned_to)})},
    )  # fmt: skip


@pytest.mark.parametrize("turned_to", [11, 25, 41, 9 + 2**20])
def test_the_files_behind_one_that_ends_with_a_turned_batch_are_asked_for(
    tmp_path: Path, turned_to: int
) -> None:
    log, batches = written(tmp_path, 0, 10, 20, 30)
    brokers = replicas(batches, [0, 10, 20, 30], 10, 9, turned_to)
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost) == (WHOLE, ())
    assert seen.data == b"".join(batches.values())


@pytest.mark.parametrize("vanished", [True, False])
def test_it_is_not_taken_for_the_one_batch_that_is_missing(tmp_path: Path, vanished: bool) -> None:
    bases = [0, 11, 12, 30] if vanished else [0, 11, 20, 30]
    log, batches = written(tmp_path, *bases)
    brokers = replicas(batches, bases, 11, 10, 11)
    if vanished:
        remove(log, 11)
    else:
        bad = batches[11][:-1] + bytes([batches[11][-1] ^ 1])
        rewrite(log, 11, lambda data: bad + bytes(data[len(bad) :]))
        brokers.files[1][11] = [bad]
    seen = outcome(tmp_path, log, brokers)
    assert (seen.lost, seen.data) == ((), b"".join(batches.values()))


@pytest.mark.parametrize(
    ("bases", "offset", "turned_to"),
    [([0, 10, 19, 30], 18, 19), ([0, 10, 11, 20], 10, 42), ([0, 10, 11, 20], 10, 10 + 2**20)],
)
def test_what_has_another_base_offset_at_the_end_of_a_replicas_file_is_not_lost(
    tmp_path: Path, bases: list[int], offset: int, turned_to: int
) -> None:
    log, batches = written(tmp_path, *bases)
    brokers = replicas(batches, bases, 10, offset, turned_to)
    remove(log, 10)
    seen = outcome(tmp_path, log, brokers)
    assert (seen.finished, seen.lost, seen.why_not) == ([], (), WhyNot.BLOCKED)
    missing = f"no good batch of offsets {offset} to {offset}"
    assert f"broker 2: its log goes from 0 to 39, but it sent {missing}" in seen.text
