"""Requests to other nodes of the quorum over Kafka's protocol: `rlmm.quorum.network_ports.Peers`.

Each node has up to three connections, each opened when it is needed: answers come in the order of
the requests, and neither a waiting Fetch, nor a Produce until its commit, may delay a Vote.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NoReturn

from kafka_client.frame_check import FrameError
from kafka_formats.errors import InvalidRequest, Refused
from rlmm.quorum.framing import fetched_batches
from rlmm.quorum.network_ports import PeerFailedError, ProduceAnswer
from rlmm.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PeerRequest,
    PeerResponse,
)
from rlmm.rows.feature_level import FEATURE, FeatureLevels
from rlmm.wire import frames
from rlmm.wire.frames import VERSIONS, Api
from rlmm.wire.hot_codec import PRODUCE_VERSION, HotCodec
from rlmm.wire.peer_connection import PeerConnection, PeerSecurity, open_connection
from rlmm.wire.quorum_codec import PeerRefusedError, QuorumCodec, api_of
from rlmm.wire.schema import Values

log = logging.getLogger(__name__)

FEATURES_VERSION = 3
"""The first version of ApiVersions with features (KIP-584)."""
_LEVELS_BEFORE_FEATURES = FeatureLevels(1, 1)

_KEPT_OUT = (ssl.SSLError, Refused, InvalidRequest, FrameError)
"""Causes of a failed connection that only an operator can remove: certificate, secret, or a
listener of a different kind.
"""

Encode = Callable[[int], bytes]


class Lane(Enum):
    """The kinds of requests, each with its own connection."""

    FETCH = "fetch"
    PRODUCE = "produce"
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """`connect_timeout_ms` covers TCP, TLS and login. After a failure, the next attempt waits
    `reconnect_backoff_ms`, doubled at each failure up to the maximum (Kafka's names).
    """

    connect_timeout_ms: int = 2_000
    reconnect_backoff_ms: int = 20
    reconnect_backoff_max_ms: int = 500
    requests_in_flight_max: int = 64


class WirePeers:
    """The connections to other nodes, on one event loop. `monotonic` returns seconds."""

    def __init__(
        self,
        *,
        cluster_id: str,
        topic_id: bytes,
        security: PeerSecurity,
        monotonic: Callable[[], float],
        new_nonce: Callable[[], str],
        limits: PeerLimits | None = None,
    ) -> None:
        self._codec = QuorumCodec(cluster_id, topic_id)
        self._hot = HotCodec(cluster_id, topic_id)
        self._security = security
        self._monotonic = monotonic
        self._new_nonce = new_nonce
        self._limits = limits or PeerLimits()
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[int, Lane], _Link] = {}
        self._refusals: dict[tuple[int, Api], str] = {}
        self._kept_out: dict[int, str] = {}
        self._closed = False

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._addresses = dict(addresses)
        for key, link in tuple(self._links.items()):
            if self._addresses.get(key[0]) != link.address:
                link.close("its address changed")
                del self._links[key]

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:
        api = api_of(request)
        encode: Encode
        if isinstance(request, FetchRequest) and request.counts:

            def encode(correlation_id: int) -> bytes:
                return self._hot.encode_fetch(request, correlation_id)

        else:

            def encode(correlation_id: int) -> bytes:
                body = self._codec.request_body(request)
                return frames.encode_request(api, VERSIONS[api][1], correlation_id, body)

        is_fetch = isinstance(request, FetchRequest | FetchSnapshotRequest)
        link = self._link(node_id, Lane.FETCH if is_fetch else Lane.EPOCH)
        frame = await link.ask(api, VERSIONS[api][1], encode, deadline_ms)
        try:
            response = self._read(link, api, frame)
        except PeerRefusedError as error:
            raise self._refused(node_id, api, error) from error
        except (FrameError, InvalidRequest) as error:
            link.close(f"a malformed answer to {api.name} ({error})")
            raise PeerFailedError(f"node {node_id}: malformed {api.name}: {error}") from error
        self._refusals.pop((node_id, api), None)
        return response

    async def produce(self, node_id: int, records: bytes, *, deadline_ms: int) -> ProduceAnswer:
        link = self._link(node_id, Lane.PRODUCE)
        frame = await link.ask(
            Api.PRODUCE,
            PRODUCE_VERSION,
            lambda correlation_id: self._hot.encode_produce(
                records, deadline_ms, correlation_id, forwarded=True
            ),
            deadline_ms,
        )
        answer = self._hot.decode_produced(frame)
        return self._refused_produce(node_id, frame) if answer is None else answer

    def _refused_produce(self, node_id: int, frame: bytes) -> NoReturn:
        """Raise the error of a response that is not a ProduceAnswer: the listener refused it
        without the quorum, or with an error that this release does not know.
        """
        try:
            body = frames.decode_response(Api.PRODUCE, PRODUCE_VERSION, frame)
            answered = body["responses"][0]["partition_responses"][0]
        except (FrameError, LookupError) as error:
            raise PeerFailedError(f"node {node_id}: malformed PRODUCE: {error}") from error
        code = answered["error_code"]
        refusal = self._refused(node_id, Api.PRODUCE, PeerRefusedError(code))
        refusal.sent = code == 0 or answered["appended"]
        raise refusal

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:
        body = await self._read_only(node_id, Api.API_VERSIONS, FEATURES_VERSION, {}, deadline_ms)
        for each in body["supported_features"]:
            if each["name"] == FEATURE:
                return FeatureLevels(each["min_version"], each["max_version"])
        return _LEVELS_BEFORE_FEATURES

    async def _read_only(
        self, node_id: int, api: Api, version: int, body: Values, deadline_ms: int
    ) -> Values:
        """The answer to a request that any client may send. Raises PeerFailedError."""
        frame = await self._link(node_id, Lane.EPOCH).ask(
            api,
            version,
            lambda correlation_id: frames.encode_request(api, version, correlation_id, body),
            deadline_ms,
        )
        try:
            return frames.decode_response(api, version, frame)
        except FrameError as error:
            raise PeerFailedError(f"node {node_id}: malformed {api.name}: {error}") from error

    async def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close("this node is shutting down")
        await asyncio.gather(*(link.ended() for link in self._links.values()))
        self._links.clear()

    def _link(self, node_id: int, lane: Lane) -> _Link:
        address = self._addresses.get(node_id)
        if address is None or self._closed:
            why = "this node is shutting down" if self._closed else "its address is not known"
            raise PeerFailedError(f"node {node_id}: {why}", sent=False)
        link = self._links.get((node_id, lane))
        if link is None:
            name = f"node {node_id} ({address[0]}:{address[1]})"
            link = self._links[node_id, lane] = _Link(
                address, self._limits, self._monotonic, lambda: self._open(node_id, name, address)
            )
        return link

    async def _open(self, node_id: int, name: str, address: tuple[str, int]) -> PeerConnection:
        try:
            connection = await open_connection(
                name, address, self._security, new_nonce=self._new_nonce
            )
        except PeerFailedError as error:
            # Logged once, and not for a node that is down, which comes back by itself.
            somebody_has_to_act = isinstance(error.__cause__, _KEPT_OUT)
            if somebody_has_to_act and self._kept_out.get(node_id) != str(error):
                self._kept_out[node_id] = str(error)
                log.warning("%s", error)
            raise
        self._kept_out.pop(node_id, None)
        return connection

    def _read(self, link: _Link, api: Api, frame: bytes) -> PeerResponse:
        response: PeerResponse
        if api is Api.FETCH and (fetched := self._hot.decode_fetched(frame)) is not None:
            response, data = fetched
        else:
            body = frames.decode_response(api, VERSIONS[api][1], frame)
            response, data = self._codec.read_response(api, body)
        if isinstance(response, FetchResponse):
            if not data:
                return response
            return replace(response, batches=tuple(fetched_batches(data, source=link.name)))
        if isinstance(response, FetchSnapshotResponse):
            return replace(response, payload=data, payload_bytes=len(data))
        return response

    def _refused(self, node_id: int, api: Api, error: PeerRefusedError) -> PeerFailedError:
        if self._refusals.get((node_id, api)) != error.name:
            self._refusals[node_id, api] = error.name
            log.warning(
                "node %d refuses %s: %s. Check that its address is right, that it was formatted "
                "for this cluster, and that both have the same secret or each other's certificates",
                node_id,
                api.name,
                error.name,
            )
        return PeerFailedError(f"node {node_id} refuses {api.name}: {error.name}")


class _Link:
    """One kind of requests to one node: the connection, or the time of the next attempt."""

    def __init__(
        self,
        address: tuple[str, int],
        limits: PeerLimits,
        monotonic: Callable[[], float],
        open_: Callable[[], Awaitable[PeerConnection]],
    ) -> None:
        self.address = address
        self.name = f"{address[0]}:{address[1]}"
        self._limits = limits
        self._monotonic = monotonic
        self._open = open_
        self._connection: PeerConnection | None = None
        self._opening: asyncio.Task[PeerConnection] | None = None
        self._failures = 0
        self._retry_at_s = 0.0
        self._in_flight = 0

    async def ask(self, api: Api, version: int, encode: Encode, deadline_ms: int) -> bytes:
        """The answer's frame. Raises PeerFailedError."""
        if self._in_flight >= self._limits.requests_in_flight_max:
            raise PeerFailedError(f"{self.name}: too many requests under way", sent=False)
        self._in_flight += 1
        try:
            loop = asyncio.get_running_loop()
            end_s = loop.time() + deadline_ms / 1000
            connection = self._connection
            if connection is None or connection.closed:
                connection = await self._connected_by(end_s, api, deadline_ms)
            low, high = connection.versions.get(api, (0, -1))
            if not low <= version <= high:
                raise PeerFailedError(
                    f"{connection.name} does not know {api.name} version {version}",
                    unsupported_version=True,
                    sent=False,
                )
            answer = connection.ask(encode)
            timer = loop.call_at(end_s, _expired, connection, answer, api, deadline_ms)
            try:
                return await answer
            finally:
                timer.cancel()
        finally:
            self._in_flight -= 1

    async def _connected_by(self, end_s: float, api: Api, deadline_ms: int) -> PeerConnection:
        try:
            async with asyncio.timeout_at(end_s):
                return await self._connected()
        except TimeoutError as error:
            raise PeerFailedError(
                f"{self.name}: no answer to {api.name} within {deadline_ms} ms", sent=False
            ) from error

    def close(self, why: str) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.abort(why)

    async def ended(self) -> None:
        """Wait until a connection attempt has ended, after `close`."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)

    async def _connected(self) -> PeerConnection:
        opening = self._opening
        if opening is None:
            wait_s = self._retry_at_s - self._monotonic()
            if wait_s > 0:
                raise PeerFailedError(
                    f"{self.name}: not reached; the next attempt is due in {wait_s:.3f} s",
                    sent=False,
                )
            opening = self._opening = asyncio.create_task(self._open_once())
            # All callers that waited may have given up by then: mark its error as retrieved.
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            # Several callers may wait for one connection: one that gives up must not cancel it.
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():  # by `close`, not this caller
                raise PeerFailedError(f"{self.name}: closed", sent=False) from None
            raise

    async def _open_once(self) -> PeerConnection:
        try:
            async with asyncio.timeout(self._limits.connect_timeout_ms / 1000):
                connection = await self._open()
        except (TimeoutError, PeerFailedError) as error:
            limits = self._limits
            backoff_ms = min(
                limits.reconnect_backoff_ms << min(self._failures, 16),
                limits.reconnect_backoff_max_ms,
            )
            self._failures += 1
            self._retry_at_s = self._monotonic() + backoff_ms / 1000
            if isinstance(error, PeerFailedError):
                raise
            raise PeerFailedError(
                f"{self.name}: no connection within {limits.connect_timeout_ms} ms", sent=False
            ) from error
        else:
            self._failures = 0
            self._connection = connection
            return connection
        finally:
            self._opening = None


def _expired(
    connection: PeerConnection, answer: asyncio.Future[bytes], api: Api, deadline_ms: int
) -> None:
    """End a connection that may hang: later requests would wait for it."""
    if not answer.done():
        connection.abort(f"no answer to {api.name} within {deadline_ms} ms")
