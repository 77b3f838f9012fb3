"""Proposers as a process of their own: Produce with acks=all to a node's listener, one record each.

`python -m bench.quorum_load PORT PROPOSERS SECONDS` prints one JSON object: how many records were
committed in how many seconds, every latency in milliseconds, and this process's CPU seconds. The
records are segments added under a claim of this process, padded to 400 bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from time import perf_counter, process_time

import uvloop

from kafka_formats.crc32c import crc32c
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.partition_state import Mode
from rlmm.quorum.ports import ProduceAnswer
from rlmm.raft.messages import Error
from rlmm.records import PartitionClaim, encode
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
    TopicIdPartition,
)
from rlmm.wire.hot_codec import HotCodec
from rlmm.wire.peer_connection import PeerConnection, PeerSecurity, open_connection
from rlmm.wire.sasl import SaslCredentials
from rlmm.wire.sasl_server import PEER_USER, SCRAM
from strandline import ambient
from tests.linearizability.node_process import CLUSTER_ID, HOST, SECRET, TOPIC_ID

RECORD_BYTES = 400
PROPOSERS_A_CONNECTION = 8
WARM_UP_S = 0.5
DEADLINE_MS = 30_000
NOW_MS = 1_700_000_000_000

_CRC_AT, _CHECKED_FROM = 17, 21
_HOT = HotCodec(CLUSTER_ID, TOPIC_ID)


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


async def produce(connection: PeerConnection, records: bytes) -> ProduceAnswer:
    """RuntimeError unless it is committed."""
    frame = await connection.ask(
        lambda correlation_id: _HOT.encode_produce(records, DEADLINE_MS, correlation_id)
    )
    answer = _HOT.decode_produced(frame)
    if answer is None or answer.error is not Error.NONE:
        raise RuntimeError(f"not committed: {answer}")
    return answer


async def claimed(connection: PeerConnection) -> Records:
    """Claim a partition of one's own."""
    topic_id = os.urandom(16)
    writer = Incarnation(1, Uuid(topic_id), 1)
    partition = TopicIdPartition("t", Uuid(topic_id), 0)
    bare_bytes = Records(partition, 1, writer).record_bytes
    padded = "t" * (1 + RECORD_BYTES - bare_bytes)
    partition = replace(partition, topic=padded)
    claim = PartitionClaim(partition, Mode.SIDECAR, 1, writer, 1, (EpochEntry(1, 0),))
    answer = await produce(connection, _batch(encode(claim)))
    return Records(partition, answer.base_offset, writer)


async def load(port: int, proposers: int, seconds: float) -> dict[str, object]:
    security = PeerSecurity(None, SaslCredentials(SCRAM, PEER_USER, SECRET))
    connections = [
        await open_connection("node", (HOST, port), security, new_nonce=ambient.new_nonce)
        for _ in range(-(-proposers // PROPOSERS_A_CONNECTION))
    ]
    records = await claimed(connections[0])
    latencies_ms: list[float] = []
    begin = perf_counter() + WARM_UP_S
    end = begin + seconds

    warm = 0

    async def propose(connection: PeerConnection) -> None:
        nonlocal warm
        while (asked := perf_counter()) < end:
            await produce(connection, records.next())
            if asked >= begin:
                latencies_ms.append((perf_counter() - asked) * 1000)
            else:
                warm += 1

    cpu_s = process_time()
    await asyncio.gather(
        *(propose(connections[number % len(connections)]) for number in range(proposers))
    )
    return {
        "records": len(latencies_ms),
        "all_records": len(latencies_ms) + warm,
        "seconds": perf_counter() - begin,
        "latencies_ms": latencies_ms,
        "cpu_s": process_time() - cpu_s,
    }


def main() -> None:
    port, proposers, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(load(port, proposers, seconds)), sys.stdout)


if __name__ == "__main__":
    main()
