"""Proposers as a process of their own: Produce with acks=all to nodes' listeners, one record each.

`python -m bench.quorum_load` reads a JSON object (`Load`) and prints another (`Run`): not from its
arguments, which everybody on the machine may read, for the quorum's secret is in it. The records
are segments added under a claim of this process, padded to 400 bytes. The connections go to the
ports in turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter, process_time

import uvloop

from kafka_client.sasl import SaslCredentials
from kafka_formats.crc32c import crc32c
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.partition_state import Mode
from rlmm.quorum.network_ports import ProduceAnswer
from rlmm.raft.messages import Error
from rlmm.records.control_records import PartitionClaim
from rlmm.records.records import encode
from rlmm.segment import Incarnation, RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from rlmm.wire.hot_codec import HotCodec
from rlmm.wire.peer_connection import PeerConnection, PeerSecurity, open_connection
from rlmm.wire.sasl_server import PEER_USER, SCRAM
from strandline.node import ambient
from tests.linearizability.node_process import CLUSTER_ID, HOST, SECRET, TOPIC_ID
from tests.real.toolbox import REPOSITORY

RECORD_BYTES = 400
PROPOSERS_A_CONNECTION = 8
WARM_UP_S = 0.5
DEADLINE_MS = 30_000
NOW_MS = 1_700_000_000_000

_CRC_AT, _CHECKED_FROM = 17, 21


@dataclass(frozen=True, slots=True)
class Quorum:
    """Identity and secret that a listener accepts; `topic_id` in hexadecimal."""

    cluster_id: str = CLUSTER_ID
    topic_id: str = TOPIC_ID.hex()
    secret: str = SECRET


@dataclass(frozen=True, slots=True)
class Load:
    """A load to run; `seconds` is without the warm-up."""

    ports: tuple[int, ...]
    proposers: int
    seconds: float
    quorum: Quorum


@dataclass(frozen=True, slots=True)
class Run:
    """Result of a load: `records` committed in `seconds`, `all_records` with the warm-up, CPU
    `cpu_s`.
    """

    records: int
    all_records: int
    seconds: float
    latencies_ms: list[float]
    cpu_s: float


async def proposers_at(
    ports: Sequence[int], proposers: int, seconds: float, *, quorum: Quorum | None = None
) -> Run:
    """Run them. RuntimeError: they failed, and said why on standard error."""
    load = Load(tuple(ports), proposers, seconds, quorum or Quorum())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.quorum_load"),
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(json.dumps(asdict(load)).encode())
    if process.returncode != 0:
        raise RuntimeError("the proposers failed; their error is above")
    return Run(**json.loads(said))


class Records:
    """One batch of one added segment after the other, all alike but for the segment's id."""

    def __init__(self, partition: TopicIdPartition, token: int, writer: Incarnation) -> None:
        mark = os.urandom(16)
        segment = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, Uuid(mark)),
            start_offset=0,
            end_offset=9_999,
            broker_id=writer.node_id,
            max_timestamp_ms=NOW_MS,
            event_timestamp_ms=NOW_MS,
            leader_epochs=((1, 0),),
            size_bytes=1_000_000_000,
            custom_metadata=None,
            state=SegmentState.COPY_SEGMENT_STARTED,
            token=token,
            writer=writer,
            upload_deadline_ms=NOW_MS + 3_600_000,
        )
        proposal = encode(segment)
        self.record_bytes = len(proposal.value)
        self._batch = bytearray(_batch(proposal))
        self._id_at = self._batch.index(mark)
        self._next_id = int.from_bytes(os.urandom(8)) << 64 | 1

    def next(self) -> bytes:
        batch = self._batch
        batch[self._id_at : self._id_at + 16] = self._next_id.to_bytes(16)
        self._next_id += 1
        batch[_CRC_AT:_CHECKED_FROM] = crc32c(memoryview(batch)[_CHECKED_FROM:]).to_bytes(4)
        return bytes(batch)


def _batch(proposal: Proposal) -> bytes:
    batches = encode_proposals((proposal,), base_offset=0, epoch=0, timestamp_ms=NOW_MS)
    return b"".join(each.data for each in batches)


class Producer:
    """One connection."""

    def __init__(self, connection: PeerConnection, hot: HotCodec) -> None:
        self._connection = connection
        self._hot = hot

    async def produce(self, records: bytes) -> ProduceAnswer:
        """Raise RuntimeError unless it is committed."""
        frame = await self._connection.ask(
            lambda correlation_id: self._hot.encode_produce(records, DEADLINE_MS, correlation_id)
        )
        answer = self._hot.decode_produced(frame)
        if answer is None or answer.error is not Error.NONE:
            raise RuntimeError(f"not committed: {answer}")
        return answer


async def claimed(producer: Producer) -> Records:
    """Claim a partition of one's own."""
    topic_id = os.urandom(16)
    writer = Incarnation(1, Uuid(topic_id), 1)
    partition = TopicIdPartition("t", Uuid(topic_id), 0)
    bare_bytes = Records(partition, 1, writer).record_bytes
    padded = "t" * (1 + RECORD_BYTES - bare_bytes)
    partition = replace(partition, topic=padded)
    claim = PartitionClaim(partition, Mode.SIDECAR, 1, writer, 1, (EpochEntry(1, 0),))
    answer = await producer.produce(_batch(encode(claim)))
    return Records(partition, answer.base_offset, writer)


async def run(load: Load) -> Run:
    quorum = load.quorum
    security = PeerSecurity(None, SaslCredentials(SCRAM, PEER_USER, quorum.secret))
    hot = HotCodec(quorum.cluster_id, bytes.fromhex(quorum.topic_id))
    producers = []
    for number in range(-(-load.proposers // PROPOSERS_A_CONNECTION)):
        address = (HOST, load.ports[number % len(load.ports)])
        connection = await open_connection("node", address, security, new_nonce=ambient.new_nonce)
        producers.append(Producer(connection, hot))
    records = await claimed(producers[0])
    latencies_ms: list[float] = []
    begin = perf_counter() + WARM_UP_S
    end = begin + load.seconds
    warm = 0

    async def propose(producer: Producer) -> None:
        nonlocal warm
        while (asked := perf_counter()) < end:
            await producer.produce(records.next())
            if asked >= begin:
                latencies_ms.append((perf_counter() - asked) * 1000)
            else:
                warm += 1

    cpu_s = process_time()
    await asyncio.gather(
        *(propose(producers[number % len(producers)]) for number in range(load.proposers))
    )
    cpu_s = process_time() - cpu_s
    count = len(latencies_ms)
    return Run(count, count + warm, perf_counter() - begin, latencies_ms, cpu_s)


def main() -> None:
    told = json.load(sys.stdin)
    load = Load(**{**told, "quorum": Quorum(**told["quorum"])})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(asdict(runner.run(run(load))), sys.stdout)


if __name__ == "__main__":
    main()
