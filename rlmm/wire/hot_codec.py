"""Fetch 18 and Produce 13 of one partition as fixed layouts, at a tenth of the cost of `schema`.
Pure.

Every commit of every node uses these four messages. A message of any other shape gives None and is
read by `schema`, with which a property test compares this file.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafka_client.frame_check import FrameError
from rlmm.quorum.network_ports import ProduceAnswer
from rlmm.raft.messages import EpochEnd, Error, FetchRequest, FetchResponse, ReplicaKey, SnapshotId
from rlmm.wire import schema
from rlmm.wire.frames import CLIENT_ID, SIZE
from rlmm.wire.names import directory_bytes, directory_text

FETCH_VERSION = 18
PRODUCE_VERSION = 13

_PARTITION_0 = bytes(4)
_NO_TAGS = b"\0"
_ONE = b"\x02"  # the compact length of a list of one
_NONE = b"\x01"  # and of an empty one, or of an empty text
_HEAD = struct.Struct(f">ihhih{len(CLIENT_ID)}sB")
_ERRORS = {error.value: error for error in Error}


class ProducedRecords(NamedTuple):
    """The content of a Produce request; `forwarded` as in `private_fields.ProduceRequest`."""

    acks: int
    timeout_ms: int
    records: bytes
    forwarded: bool = False


class HotCodec:
    """The codec of the frequent messages, for one cluster and topic. Encoded frames include their
    size, frames to decode do not.
    """

    def __init__(self, cluster_id: str, topic_id: bytes) -> None:
        topic = _ONE + topic_id + _ONE + _PARTITION_0
        self._fetch_request(cluster_id.encode(), topic)
        self._fetch_response(topic)
        self._produce_request(topic)
        self._produce_response(topic)

    # ---- Fetch request: header | waits and bounds | partition | tagged fields

    def _fetch_request(self, cluster_id: bytes, topic: bytes) -> None:
        text = bytearray()
        schema.write_uvarint(text, len(cluster_id) + 1)
        text += cluster_id
        cluster = bytearray(b"\0")
        schema.write_uvarint(cluster, len(text))
        cluster += text
        parts = (
            # Isolation level, no session and its epoch.
            bytes(5) + b"\xff" * 4 + topic,
            b"\x02\x00\x10",
            b"\x01\x08",
            _NO_TAGS + _NONE + _NONE + b"\x02" + bytes(cluster) + b"\x01\x0d",
            _NO_TAGS,
        )
        shared, directory, high_watermark, tail, end = map(len, parts)
        self._fetch_parts = parts
        self._fetch_body = struct.Struct(
            f">iii{shared}siqiqi{directory}s16s{high_watermark}sq{tail}siq{end}s"
        )

    def encode_fetch(self, request: FetchRequest, correlation_id: int) -> bytes:
        """A Fetch of a replica with `counts` True."""
        parts, body = self._fetch_parts, self._fetch_body
        size = _HEAD.size - SIZE.size + body.size
        head = _HEAD.pack(size, 1, FETCH_VERSION, correlation_id, len(CLIENT_ID), CLIENT_ID, 0)
        return head + body.pack(
            request.wait_max_ms, 1, request.bytes_max, parts[0],
            request.epoch, request.fetch_offset, request.last_fetched_epoch, -1, request.bytes_max,
            parts[1], directory_bytes(request.replica.directory_id),
            parts[2], request.high_watermark,
            parts[3], request.replica.node_id, request.incarnation, parts[4],
        )  # fmt: skip

    def decode_fetch(self, frame: bytes, at: int) -> FetchRequest | None:
        """The body at `at`; None unless it is a replica's Fetch for this cluster and topic."""
        if len(frame) - at != self._fetch_body.size:
            return None
        (
            wait_max_ms, _, bytes_max, part0, epoch, fetch_offset, last_fetched_epoch, _,
            partition_bytes_max, part1, directory, part2, high_watermark, part3, node_id,
            incarnation, part4,
        ) = self._fetch_body.unpack_from(frame, at)  # fmt: skip
        if (part0, part1, part2, part3, part4) != self._fetch_parts or node_id < 0:
            return None
        replica = ReplicaKey(node_id, directory_text(directory))
        bytes_max = min(bytes_max, partition_bytes_max)
        return FetchRequest(
            replica, epoch, fetch_offset, last_fetched_epoch, wait_max_ms, bytes_max,
            high_watermark, incarnation,
        )  # fmt: skip

    # ---- Fetch response: header, errors | partition | records | tagged fields

    def _fetch_response(self, topic: bytes) -> None:
        start = _NO_TAGS + bytes(4) + bytes(2) + bytes(4) + topic
        self._fetched_parts = (start, b"\0" + b"\xff" * 4)
        self._fetched = struct.Struct(f">i{len(start)}shqqq5s")

    def encode_fetched(self, response: FetchResponse, data: bytes, correlation_id: int) -> bytes:
        """The answer to a replica, with the records in `data`."""
        tail = _fetched_tail(response)
        length = bytearray()
        schema.write_uvarint(length, len(data) + 1)
        start, constant = self._fetched_parts
        high_watermark = response.high_watermark
        body = self._fetched.pack(
            correlation_id, start, response.error.value, high_watermark, high_watermark,
            response.log_start_offset, constant,
        )  # fmt: skip
        size = len(body) + len(length) + len(data) + len(tail)
        return b"".join((SIZE.pack(size), body, length, data, tail))

    def decode_fetched(self, frame: bytes) -> tuple[FetchResponse, bytes] | None:
        """The answer and its records; None for a different topic, or with a top-level error."""
        layout = self._fetched
        if len(frame) <= layout.size:
            return None
        _, start, code, high_watermark, _, log_start, constant = layout.unpack_from(frame)
        error = _ERRORS.get(code)
        if (start, constant) != self._fetched_parts or error is None:
            return None
        try:
            length, at = schema.read_uvarint(frame, layout.size)
        except FrameError:
            return None
        end = at + max(length - 1, 0)
        tail = _read_fetched_tail(frame[end:])
        if tail is None or end > len(frame):
            return None
        leader_id, leader_epoch, diverging, snapshot = tail
        response = FetchResponse(
            error, leader_id, leader_epoch, high_watermark, log_start, diverging, snapshot
        )
        return response, frame[at:end]

    # ---- Produce

    def _produce_request(self, topic: bytes) -> None:
        self._topic = topic
        self._produce_body = struct.Struct(f">Bhi{len(topic)}s")

    def encode_produce(
        self, records: bytes, timeout_ms: int, correlation_id: int, *, forwarded: bool = False
    ) -> bytes:
        """A Produce with acks=all."""
        length = bytearray()
        schema.write_uvarint(length, len(records) + 1)
        body = self._produce_body.pack(0, -1, timeout_ms, self._topic)
        tail = _PRODUCE_TAILS[forwarded]
        size = _HEAD.size - SIZE.size + len(body) + len(length) + len(records) + len(tail)
        head = _HEAD.pack(size, 0, PRODUCE_VERSION, correlation_id, len(CLIENT_ID), CLIENT_ID, 0)
        return b"".join((head, body, length, records, tail))

    def decode_produce(self, frame: bytes, at: int) -> ProducedRecords | None:
        """The body at `at`; None unless it is not transactional and for this topic."""
        layout = self._produce_body
        if len(frame) - at <= layout.size:
            return None
        transactional, acks, timeout_ms, topic = layout.unpack_from(frame, at)
        if transactional or topic != self._topic:
            return None
        try:
            length, start = schema.read_uvarint(frame, at + layout.size)
        except FrameError:
            return None
        end = start + length - 1
        tail = frame[end:]
        if length < 1 or end > len(frame) or tail not in _PRODUCE_TAILS:
            return None
        forwarded = tail == _PRODUCE_TAILS[True]
        return ProducedRecords(acks, timeout_ms, frame[start:end], forwarded)

    def _produce_response(self, topic: bytes) -> None:
        start = _NO_TAGS + topic
        # No append time and start offset, no record errors, no message; leader and `appended`.
        middle = b"\xff" * 16 + _NONE + b"\0" + b"\x02\x00\x09"
        self._produced_parts = (start, middle, b"\0\x90\x4e\x01", bytes(6))
        self._produced = struct.Struct(f">ii{len(start)}shq{len(middle)}sii4sB6s")

    def encode_produced(self, answer: ProduceAnswer, correlation_id: int) -> bytes:
        """The answer to a peer's Produce."""
        layout, parts = self._produced, self._produced_parts
        return layout.pack(
            layout.size - SIZE.size, correlation_id, parts[0], answer.error.value,
            answer.base_offset, parts[1], answer.leader_id, answer.leader_epoch,
            parts[2], answer.appended, parts[3],
        )  # fmt: skip

    def decode_produced(self, frame: bytes) -> ProduceAnswer | None:
        """Decode the answer to a Produce; None unless it has the shape that `encode_produced`
        writes.
        """
        layout = self._produced
        if len(frame) != layout.size - SIZE.size:
            return None
        values = layout.unpack(SIZE.pack(0) + frame)
        _, _, start, code, base_offset, middle, leader_id, epoch, tag, appended, end = values
        error = _ERRORS.get(code)
        if (start, middle, tag, end) != self._produced_parts or error is None or appended > 1:
            return None
        return ProduceAnswer(error, base_offset, bool(appended), leader_id, epoch)


_PRODUCE_TAILS = (b"\0\0\0", b"\0\0\x01\x90\x4e\x01\x01")
"""Tagged fields of partition, topic and request: none, or `forwarded`."""

_TAIL_LEADER = struct.Struct(">3sii3s")
_TAIL_DIVERGING = struct.Struct(">3siq3sii3s")
_TAIL_SNAPSHOT = struct.Struct(">3sii3sqi3s")

_Tail = tuple[int, int, EpochEnd | None, SnapshotId | None]


def _fetched_tail(response: FetchResponse) -> bytes:
    """Tagged fields 0 (diverging epoch), 1 (leader) and 2 (snapshot), then two empty sets."""
    leader = (response.leader_id, response.leader_epoch)
    if response.diverging is not None:
        return _TAIL_DIVERGING.pack(
            b"\x02\x00\x0d", *response.diverging, b"\0\x01\x09", *leader, b"\0\0\0"
        )
    if response.snapshot is not None:
        return _TAIL_SNAPSHOT.pack(
            b"\x02\x01\x09", *leader, b"\0\x02\x0d", *response.snapshot, b"\0\0\0"
        )
    return _TAIL_LEADER.pack(b"\x01\x01\x09", *leader, b"\0\0\0")


def _read_fetched_tail(tail: bytes) -> _Tail | None:
    if tail[:3] == b"\x01\x01\x09" and len(tail) == _TAIL_LEADER.size:
        _, leader_id, leader_epoch, end = _TAIL_LEADER.unpack(tail)
        return (leader_id, leader_epoch, None, None) if end == b"\0\0\0" else None
    if tail[:3] == b"\x02\x00\x0d" and len(tail) == _TAIL_DIVERGING.size:
        _, epoch, offset, next_, leader_id, leader_epoch, end = _TAIL_DIVERGING.unpack(tail)
        if (next_, end) == (b"\0\x01\x09", b"\0\0\0") and epoch >= 0:
            return leader_id, leader_epoch, EpochEnd(epoch, offset), None
    if tail[:3] == b"\x02\x01\x09" and len(tail) == _TAIL_SNAPSHOT.size:
        _, leader_id, leader_epoch, next_, offset, epoch, end = _TAIL_SNAPSHOT.unpack(tail)
        if (next_, end) == (b"\0\x02\x0d", b"\0\0\0") and offset >= 0:
            return leader_id, leader_epoch, None, SnapshotId(offset, epoch)
    return None
