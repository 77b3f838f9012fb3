"""Answers to a client's requests: relayed, rewritten, or put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial

from kafka_client.frame_check import FrameError
from kafka_formats.errors import CorruptData, RetryLater
from kafka_listener.access import rights as topic_rights
from kafka_listener.connections.brokers import Brokers
from kafka_listener.connections.client import Client
from kafka_listener.connections.fetching import PAUSE_S_MAX, Fetching, Send, TierRecords
from kafka_listener.connections.last_metadata import LastMetadata
from kafka_listener.connections.logins import Logins
from kafka_listener.connections.offset_answers import OffsetAnswers
from kafka_listener.connections.read_counts import BrokenOff, ReadCounts
from kafka_listener.connections.shares import (
    LONG_REQUEST_BYTES,
    PARTITION_BYTES,
    SLICE,
    RequestRoom,
)
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.protocol import node_rewriting
from kafka_listener.protocol.apis import SERVED, Api, Served, Treatment, served
from kafka_listener.protocol.codec import (
    ClientRequest,
    Head,
    Pieces,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    head_of,
    partitions_in,
    sized,
)
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.protocol.newest_leaders import NewestLeaders
from kafka_listener.protocol.refusals import (
    asks_by_id_too_early,
    metadata_refused,
    produce_refused,
    producer_id_refused,
)
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.kept_objects import kept_objects
from rlm.data_plane.read_request import ClientEnd, SendRules, Sent
from rlmm.wire.schema import Values
from rlmm.wire.server_connection import DisconnectError

NO_ACKNOWLEDGEMENT = 0
"""`acks` of a producer that expects no answer."""
LEARNT_WEIGHT = 0.1
"""The work of remembering a partition, as a fraction of the work of answering about it."""
SEND_RULES = SendRules(grace_s=30.0, bytes_per_s_min=65_536, store_deadline_s=30.0)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a node. `open_ports` is awaited before each answer that names nodes: a
    broker's port has to be open before any client learns of it.
    """

    replicas: LiveReplicas
    brokers: Brokers
    fetching: Fetching
    offsets: OffsetAnswers
    logins: Logins
    rights: TopicRights
    counts: ReadCounts
    open_ports: Callable[[], Awaitable[None]]
    leaders: NewestLeaders = field(default_factory=NewestLeaders)
    last: LastMetadata = field(default_factory=LastMetadata)
    room: RequestRoom = field(default_factory=RequestRoom)

    def begin(self, client: Client, frame: bytes) -> Awaitable[bytes]:
        """The answer, with its size. DisconnectError: the connection has to end without one."""
        head = None
        try:
            head = head_of(frame)
            found = served(head.api_key, head.version)
            if found is not None and found.treatment is Treatment.LOGIN:
                self.counts.requests[Api(head.api_key).name] += 1
                return self.logins.answer(client, head, frame)
            self.logins.check(client, head)
            if found is None:
                return _not_served(head)
            self.counts.requests[Api(head.api_key).name] += 1
            if found.treatment is Treatment.RELAYED:
                return self._relayed(client, head, frame)
            return self._answer(client, found, frame)
        except FrameError as error:
            raise _unreadable(head, error) from error

    async def _answer(self, client: Client, found: Served, frame: bytes) -> bytes:
        async with self.room.of(len(frame)):
            return await self._answer_in_room(client, found, frame)

    async def _answer_in_room(self, client: Client, found: Served, frame: bytes) -> bytes:
        decode = partial(decode_request, frame)
        try:
            request = await self.brokers.turns.apart(len(frame) // PARTITION_BYTES, decode)
        except FrameError as error:
            raise _unreadable(head_of(frame), error) from error
        if found.treatment is not Treatment.READ:
            return self._refused(client, request)
        match request.head.api_key:
            case Api.FETCH:
                if len(frame) >= LONG_REQUEST_BYTES:  # it holds room meanwhile
                    longest_ms = round(1_000 * PAUSE_S_MAX)
                    request.body["max_wait"] = min(request.body["max_wait"], longest_ms)
                return await self.fetching.answer(client, request, self._sender(client))
            case Api.LIST_OFFSETS:
                body = await self.offsets.list_offsets(client, request)
            case Api.OFFSET_FOR_LEADER_EPOCH:
                body = await self.offsets.epoch_ends(client, request)
            case Api.METADATA:
                return await self._metadata(client, request)
            case Api.FIND_COORDINATOR:
                body = await self._coordinator(client, request)
            case Api.DESCRIBE_CLUSTER:
                body = await self._cluster(client, request)
            case _:
                body = await self._versions(client, request)
        encode = partial(encode_response, request.head, body)
        return await self.brokers.turns.apart(partitions_in(request.body), encode)

    async def _relayed(self, client: Client, head: Head, frame: bytes) -> bytes:
        try:
            return sized(await client.relay(frame))
        except RetryLater as error:
            self._no_broker(client, head, error)
            raise
        except CorruptData as error:  # clients then look up the coordinator again
            raise DisconnectError(_unanswered(head, error)) from error

    def _no_broker(self, client: Client, head: Head, error: RetryLater) -> None:
        why = f"its broker did not answer {_name(head)} ({error})"
        self.counts.broke_off(client.name, BrokenOff.BROKER, why)

    def _refused(self, client: Client, request: ClientRequest) -> bytes:
        head = request.head
        if head.api_key == Api.PRODUCE:
            self.counts.refused(
                client.name,
                "sent Produce: a read replica accepts no records, produce to the brokers",
            )
            if request.body["acks"] == NO_ACKNOWLEDGEMENT:
                raise DisconnectError("sent Produce with acks=0, to which no error can be answered")
            return encode_response(head, produce_refused(request.body))
        self.counts.refused(
            client.name,
            "sent InitProducerId: a read replica has no producer ids, produce to the brokers",
        )
        return encode_response(head, producer_id_refused())

    async def _metadata(self, client: Client, request: ClientRequest) -> bytes:
        if asks_by_id_too_early(request.head.version, request.body):
            return await self._metadata_refused(request, ErrorCode.INVALID_REQUEST)
        async with AsyncExitStack() as held:
            return await self._metadata_held(client, request, held)

    async def _metadata_held(
        self, client: Client, request: ClientRequest, held: AsyncExitStack
    ) -> bytes:
        asked, is_news = {**request.body, "allow_auto_topic_creation": False}, True
        try:
            body = await client.exchange(request.head, request.client_id, asked, held=held)
        except RetryLater as error:
            if not self.brokers.known or await self.brokers.answers(None):
                self._no_broker(client, request.head, error)
                raise  # the client then asks a different node
            body, is_news = await self._last_metadata(client, asked, held), False
        except CorruptData as error:
            self.counts.refused(client.name, _unanswered(request.head, error))
            return await self._metadata_refused(request, ErrorCode.LEADER_NOT_AVAILABLE)
        is_long = partitions_in(body) > SLICE
        # A full garbage collection would scan all of this answer on the event loop.
        with kept_objects() if is_long else nullcontext():
            await self._learn(body, is_news=is_news)
            await self.open_ports()
            return await self._rewritten(client, request.head, body, asked)

    async def _rewritten(self, client: Client, head: Head, body: Values, asked: Values) -> bytes:
        allows, nodes = partial(self.rights.allows, client), self.replicas.nodes

        def answer() -> bytes:
            topic_rights.leave_out(body, allows, asked)
            node_rewriting.rewrite_metadata(body, nodes)
            return encode_response(head, body)

        return await self.brokers.turns.apart(partitions_in(body), answer)

    async def _metadata_refused(self, request: ClientRequest, error: ErrorCode) -> bytes:
        def answer() -> bytes:
            return encode_response(request.head, metadata_refused(request.body, error))

        return await self.brokers.turns.apart(partitions_in(request.body), answer)

    async def _learn(self, body: Values, *, is_news: bool) -> None:
        """Remember a broker's Metadata, and replace leaders in it that are older than those known.
        State that all connections share is changed by the event loop alone, so this runs in slices
        and not in a thread. `is_news`: a broker has just sent this answer.
        """

        async def learn(topics: Sequence[Values]) -> None:
            some = {**body, "topics": topics}
            if is_news:
                self.last.take(some)
                self.brokers.learn(some)
            self.leaders.settle(some)

        def weight(topic: Values) -> float:
            return LEARNT_WEIGHT * (1 + len(topic["partitions"]))

        await learn(())  # the brokers, even if the answer has no topics
        await self.brokers.turns.in_slices(body["topics"], learn, weight)

    async def _last_metadata(self, client: Client, asked: Values, held: AsyncExitStack) -> Values:
        """The last Metadata that brokers sent: a client that is refused here may have no other way
        to the tier.
        """
        known = self.last.known(asked)
        rights = await self.rights.of(client, known)
        if len(known) > 1:
            await held.enter_async_context(self.brokers.turns.long_answers)

        def may_hear(topic: str) -> bool:
            return topic_rights.offset_error(rights.get(topic)) == ErrorCode.NONE

        return self.last.answer(asked, self.brokers.known, may_hear)

    async def _cluster(self, client: Client, request: ClientRequest) -> Values:
        if request.body.get("endpoint_type", node_rewriting.BROKERS) != node_rewriting.BROKERS:
            why = "a read replica has no controllers: ask the controllers themselves"
            return {"error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "error_message": why}
        try:
            body = await client.exchange(request.head, request.client_id, request.body)
        except RetryLater as error:
            self._no_broker(client, request.head, error)
            raise
        except CorruptData as error:
            self.counts.refused(client.name, _unanswered(request.head, error))
            why = node_rewriting.UNREADABLE
            return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "error_message": why}
        self.brokers.learn_some(node_rewriting.cluster_brokers_in(body))
        await self.open_ports()
        node_rewriting.rewrite_cluster(body, self.replicas.nodes)
        return body

    async def _coordinator(self, client: Client, request: ClientRequest) -> Values:
        if request.body.get("key_type", node_rewriting.GROUP) != node_rewriting.GROUP:
            return node_rewriting.no_coordinator(
                request.body,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                node_rewriting.TRANSACTIONS_REFUSED,
            )
        try:
            body = await client.exchange(request.head, request.client_id, request.body)
        except (RetryLater, CorruptData):  # their text names a broker's address
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return node_rewriting.no_coordinator(request.body, code, node_rewriting.BROKER_AWAY)
        self.brokers.learn_some(node_rewriting.coordinators_in(body))
        await self.open_ports()
        node_rewriting.rewrite_coordinators(body, self.replicas.nodes)
        return body

    async def _versions(self, client: Client, request: ClientRequest) -> Values:
        logs_in = self.logins.are_wanted
        frame = encode_request(request.head, request.client_id, request.body)
        try:
            if logs_in:
                # The twin has requested the versions already: before a login a broker answers them
                # only once.
                versions = await client.versions()
                return {"api_keys": node_rewriting.api_keys(versions, logs_in=True)}
            answer = await client.relay(frame[4:])
            body = decode_response(request.head, answer)
        except (RetryLater, CorruptData, FrameError):
            # The broker is unreachable, or does not know this version of ApiVersions and answers in
            # the oldest. The APIs served here do not depend on it.
            if not self.brokers.versions:  # an empty list would end Java's client for good
                raise DisconnectError(
                    "sent ApiVersions before this node has reached any broker: try again, and "
                    "check kafka.bootstrap if it persists"
                ) from None
            known = node_rewriting.api_keys(self.brokers.versions, logs_in=logs_in)
            return {"error_code": ErrorCode.NONE, "api_keys": known}
        node_rewriting.rewrite_versions(body, logs_in=logs_in)
        return body

    def _sender(self, client: Client) -> Send:
        """Sends an answer of which a worker holds a part: the worker writes its part to the client
        itself.
        """

        async def send(pieces: Pieces, further: FurtherRequests | None) -> Sent | None:
            for piece in pieces:
                if isinstance(piece, bytes):
                    await client.connection.write_part(piece)
                    continue
                assert isinstance(piece, TierRecords)
                if (
                    client.connection.is_encrypted
                ):  # a worker does not have the keys of the connection
                    await client.connection.write_part(await self._read(client, piece))
                    continue
                sent = await self._send(client, piece, further)
                if further is not None:
                    return sent  # the worker sent the end of the answer, too
            return None

        return send

    async def _read(self, client: Client, piece: TierRecords) -> bytes:
        try:
            return await piece.batches.read()
        except RetryLater as error:
            self._no_end(client, error)
            raise

    async def _send(
        self, client: Client, piece: TierRecords, further: FurtherRequests | None
    ) -> Sent:
        """Have the worker send its batches. RetryLater: not all bytes were sent, and the connection
        has ended.
        """
        size = piece.size_bytes + (0 if further is None else len(further.after))
        with client.connection.lend() as lent:
            try:
                sent = await piece.batches.send_to(lent, SEND_RULES, further)
            except RetryLater as error:
                self._no_end(client, error)
                raise
            if sent.end is ClientEnd.TOOK_ALL and sent.sent_bytes == size:
                return sent
            why = f"the client took {sent.sent_bytes} of {size} bytes of an answer"
            if sent.sent_bytes == size:
                why = "the client took an answer, and only a part of the next one"
            if sent.end is not ClientEnd.GONE:  # a client that disconnects is not logged
                self.counts.broke_off(
                    client.name, BrokenOff.NOT_TAKEN, f"{why} before the deadline"
                )
            raise RetryLater(why)

    def _no_end(self, client: Client, error: RetryLater) -> None:
        why = f"the tier's batches could not be sent completely ({error})"
        self.counts.broke_off(client.name, BrokenOff.TIER, why)


def _unreadable(head: Head | None, error: FrameError) -> DisconnectError:
    return DisconnectError(f"sent {_name(head)} that cannot be read: {error}")


def _not_served(head: Head) -> Awaitable[bytes]:
    if head.api_key == Api.API_VERSIONS:
        return _versions_refused(head)
    raise DisconnectError(
        f"sent {_name(head)}, which a read replica does not serve: send requests that change "
        "topics, records or configuration to the brokers"
    )


def _name(head: Head | None) -> str:
    if head is None:
        return "a request"
    known = SERVED.get(head.api_key)
    name = f"API key {head.api_key}" if known is None else Api(head.api_key).name
    return f"{name} version {head.version}"


def _unanswered(head: Head, error: CorruptData) -> str:
    return f"sent {_name(head)}, and its broker's answer cannot be used: {error}"


async def _versions_refused(head: Head) -> bytes:
    """Answer an unknown version of ApiVersions as Kafka's brokers do: in the oldest one, with the
    versions that exist.
    """
    ours = SERVED[Api.API_VERSIONS]
    key = {"api_key": Api.API_VERSIONS, "min_version": ours.low, "max_version": ours.high}
    oldest = Head(head.api_key, 0, head.correlation_id)
    return encode_response(oldest, {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [key]})
