"""Answers to requests that need no login, so that Kafka's own tools can inspect the quorum.

Sources: KafkaApis and ControllerApis of Kafka 4.3, and how Kafka's clients use the answers.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_formats.errors import NotFound
from rlmm.log.recovery import TOPIC
from rlmm.quorum.network_ports import ListenerView, QuorumServer
from rlmm.raft.messages import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaDescription
from rlmm.wire import frames
from rlmm.wire.anonymous_share import AnonymousShare
from rlmm.wire.frames import Api, Request
from rlmm.wire.names import PARTITION, directory_bytes
from rlmm.wire.quorum_codec import Body, QuorumCodec
from rlmm.wire.schema import Values
from rlmm.wire.served_log import ListenerAmbient, ServedLog
from rlmm.wire.server_connection import ListenerLimits

LISTENER_NAME = "QUORUM"
POLL_S = 0.05

LATEST = (-1, -3)
"""Timestamps of ListOffsets: the end, and the largest timestamp (about that of the last record)."""
EARLIEST = (-2, -4)
"""Timestamps of ListOffsets: the start of the log, and of its local part, which is the same."""


class ReadAnswers:
    """The answers of one listener to requests that only read."""

    def __init__(
        self,
        server: QuorumServer,
        codec: QuorumCodec,
        served: ServedLog,
        ambient: ListenerAmbient,
        limits: ListenerLimits,
        share: AnonymousShare,
    ) -> None:
        self._server = server
        self._codec = codec
        self._cluster_id = served.cluster_id
        self._topic_id = served.topic_id
        self._limits = limits
        self._share = share
        self._sleep = ambient.sleep
        self._to_wall_ms = ambient.to_wall_ms
        self.waiting = 0
        """The number of consumers that wait for records; each polls every `POLL_S`."""

    def begin(self, request: Request) -> bytes | Coroutine[Any, Any, bytes]:
        """The answer's frame, or an awaitable of it. Raises RequestRefusedError."""
        if request.api is Api.FETCH:
            return self._fetch(request)
        if request.api is Api.DESCRIBE_QUORUM:
            self._codec.only_partition(request.body["topics"], "topic_name", "partition_index")
            return self._describe_quorum(request)
        body = {
            Api.METADATA: self._metadata,
            Api.DESCRIBE_CLUSTER: self._describe_cluster,
            Api.LIST_OFFSETS: self._list_offsets,
            Api.FIND_COORDINATOR: self._find_coordinator,
        }[request.api](request.body, self._server.view())
        return _encode(request, body)

    def _metadata(self, body: Values, view: ListenerView) -> Body:
        # Only the leader: admin clients ask any broker about the quorum, and only it can answer.
        nodes = [node for node in view.nodes if node[0] == view.leader_id] or view.nodes
        asked = body["topics"]
        # Each topic once, as Kafka does.
        each = {(t["name"], t.get("topic_id")): t for t in asked or ()}.values()
        topics = [self._asked_topic(t, view) for t in each] if asked else [self._topic(view)]
        return {
            "brokers": [_broker(*node) for node in nodes],
            "cluster_id": self._cluster_id,
            "controller_id": view.leader_id,
            "topics": topics,
        }

    def _topic(self, view: ListenerView) -> Body:
        replicas = [node_id for node_id, _, _ in view.nodes]
        has_leader = view.leader_id in replicas
        error = ErrorCode.none if has_leader else ErrorCode.leader_not_available
        partition = {
            "error_code": error.value,
            "partition_index": PARTITION,
            "leader_id": view.leader_id if has_leader else -1,
            "leader_epoch": view.leader_epoch,
            "replica_nodes": replicas,
            "isr_nodes": replicas,
        }
        return {
            "name": TOPIC,
            "topic_id": self._topic_id,
            "is_internal": True,
            "partitions": [partition],
        }

    def _asked_topic(self, asked: Values, view: ListenerView) -> Body:
        if asked["name"] == TOPIC or (
            asked["name"] is None and asked.get("topic_id") == self._topic_id
        ):
            return self._topic(view)
        code = ErrorCode.unknown_topic_or_partition
        if asked["name"] is None:
            code = ErrorCode.unknown_topic_id
        return {"error_code": code.value, **asked, "partitions": []}

    def _describe_cluster(self, body: Values, view: ListenerView) -> Body:
        return {
            "endpoint_type": body.get("endpoint_type", 1),
            "cluster_id": self._cluster_id,
            "controller_id": view.leader_id,
            "brokers": [
                {"broker_id": node_id, "host": host, "port": port}
                for node_id, host, port in view.nodes
            ],
        }

    def _find_coordinator(self, body: Values, _view: ListenerView) -> Body:
        """The answer that there is no coordinator, after which a consumer reads without a group."""
        error = {
            "error_code": ErrorCode.coordinator_not_available.value,
            "error_message": "consumer groups are not supported here",
            "node_id": -1,
            "port": -1,
        }
        return {
            **error,
            "coordinators": [{**error, "key": key} for key in body.get("coordinator_keys", ())],
        }

    async def _describe_quorum(self, request: Request) -> bytes:
        response = (await self._server.answer(DescribeQuorumRequest())).response
        assert isinstance(response, DescribeQuorumResponse)
        partition = {
            "partition_index": PARTITION,
            "error_code": response.error.value,
            "leader_id": response.leader_id,
            "leader_epoch": response.leader_epoch,
            "high_watermark": response.high_watermark,
            "current_voters": self._replicas(response.voters),
            "observers": self._replicas(response.observers),
        }
        name = request.body["topics"][0]["topic_name"]
        body = {
            "topics": [{"topic_name": name, "partitions": [partition]}],
            "nodes": [
                {
                    "node_id": node_id,
                    "listeners": [{"name": LISTENER_NAME, "host": host, "port": port}],
                }
                for node_id, host, port in self._server.view().nodes
            ],
        }
        return _encode(request, body)

    def _replicas(self, replicas: Sequence[ReplicaDescription]) -> list[Body]:
        to_wall = self._to_wall_ms()

        def wall(time_ms: int) -> int:
            return time_ms + to_wall if time_ms >= 0 else -1

        return [
            {
                "replica_id": each.key.node_id,
                "replica_directory_id": directory_bytes(each.key.directory_id),
                "log_end_offset": each.log_end_offset,
                "last_fetch_timestamp": wall(each.last_fetch_ms),
                "last_caught_up_timestamp": wall(each.last_caught_up_ms),
            }
            for each in replicas
        ]

    def _list_offsets(self, body: Values, view: ListenerView) -> Body:
        def answer(topic: str, asked: Values) -> Body:
            partition = {"partition_index": asked["partition_index"]}
            if topic != TOPIC or asked["partition_index"] != PARTITION:
                return {**partition, "error_code": ErrorCode.unknown_topic_or_partition.value}
            found = {**partition, "leader_epoch": view.leader_epoch}
            if asked["timestamp"] in LATEST:
                return {**found, "offset": view.high_watermark}
            if asked["timestamp"] in EARLIEST:
                return {**found, "offset": view.log_start_offset}
            return {**partition, "error_code": ErrorCode.unsupported_version.value}

        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [answer(topic["name"], each) for each in topic["partitions"]],
                }
                for topic in body["topics"]
            ]
        }

    async def _fetch(self, request: Request) -> bytes:
        """The answer to a consumer's Fetch: committed records of the log's one partition; others
        are unknown.
        """
        ours: list[tuple[Values, Values]] = []
        topics = []
        unknown = ErrorCode.unknown_topic_or_partition
        for topic in request.body["topics"]:
            by_id = "topic_id" in topic
            known = topic["topic_id"] == self._topic_id if by_id else topic["topic"] == TOPIC
            if by_id and not known:
                unknown = ErrorCode.unknown_topic_id
            answers: list[Values] = []
            for asked in topic["partitions"]:
                answer: Values = {
                    "partition_index": asked["partition"],
                    "high_watermark": -1,
                    "aborted_transactions": None,
                    "records": b"",
                }
                if known and asked["partition"] == PARTITION and not ours:
                    ours.append((asked, answer))
                else:
                    answer["error_code"] = unknown.value
                answers.append(answer)
            topics.append({**topic, "partitions": answers})
        for asked, answer in ours:
            wait_ms = request.body["max_wait"] if len(topics) == 1 else 0
            await self._read(request.body, asked, answer, wait_ms)
        return _encode(request, {"responses": topics})

    async def _read(self, body: Values, asked: Values, answer: Values, wait_ms: int) -> None:
        offset = asked["fetch_offset"]
        bytes_max = min(
            body["max_bytes"], asked["partition_max_bytes"], self._limits.consumer_bytes_max
        )
        bytes_max = max(bytes_max, 1)
        if self.waiting >= self._limits.consumer_waits_max:
            wait_ms = 0
        self.waiting += 1
        try:
            view = await self._view_to_read(offset, bytes_max, wait_ms)
        finally:
            self.waiting -= 1
        answer["high_watermark"] = answer["last_stable_offset"] = view.high_watermark
        answer["log_start_offset"] = view.log_start_offset
        if self._share.free_bytes < bytes_max:
            self._share.refuse_read()
            return  # other clients have not taken their answers: empty for now, the client retries
        try:
            if not view.log_start_offset <= offset <= view.high_watermark:
                raise NotFound(f"offset {offset} is not in the log")
            with self._share.reading(bytes_max):
                answer["records"] = await self._server.read_committed(offset, bytes_max)
        except NotFound:
            answer["error_code"] = ErrorCode.offset_out_of_range.value

    async def _view_to_read(self, offset: int, bytes_max: int, wait_ms: int) -> ListenerView:
        """The view, once records are at `offset` and there is room for them, or time is over."""
        polls = min(max(wait_ms, 0), self._limits.consumer_wait_max_ms) / 1000 / POLL_S
        view = self._server.view()
        while polls >= 1 and (offset == view.high_watermark or self._share.free_bytes < bytes_max):
            polls -= 1
            await self._sleep(POLL_S)
            view = self._server.view()
        return view


def _broker(node_id: int, host: str, port: int) -> Body:
    return {"node_id": node_id, "host": host, "port": port}


def _encode(request: Request, body: Body) -> bytes:
    return frames.encode_response(request.api, request.version, request.correlation_id, body)
