"""One connection to a different node of the quorum: requests pipelined, matched by their ids."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from kafka_client.frame_check import FrameError
from kafka_client.sasl import SaslCredentials, sasl_client
from kafka_formats.errors import InvalidRequest, Refused
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.wire import frames
from rlmm.wire.frames import SIZE, Api

RESPONSE_BYTES_MAX = 16 << 20
CORRELATION_MAX = 2**31
UNACKNOWLEDGED_MAX_MS = 5_000
"""The time without an acknowledgement by the other machine after which a connection ends. TCP alone
would retry for a quarter of an hour, at growing intervals: after a network partition, a connection
whose last request had a long deadline would delay the next ones although the node is reachable.
"""

_LOGINS = ThreadPoolExecutor(2, thread_name_prefix="quorum-login")
"""The threads for SCRAM's salted password, which takes milliseconds. They are not the loop's own,
all of which a hanging disk may block.
"""

ApiVersions = dict[int, tuple[int, int]]
_API_VERSIONS_VERSION = 0
_SASL_VERSION = 1
_SASL_ROUNDS_MAX = 4


@dataclass(slots=True)
class PeerSecurity:
    """The security of connections to peers. `tls` None: plain text. `credentials` None: this node
    authenticates by its certificate. A changed `tls` is used for new connections.
    """

    tls: ssl.SSLContext | None = None
    credentials: SaslCredentials | None = None


@dataclass(slots=True, eq=False)
class _Asked:
    correlation_id: int
    answer: asyncio.Future[bytes]


class PeerConnection(asyncio.Protocol):
    """A connection, made by `open_connection`. `versions` are those that the node announced."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions: ApiVersions = {}
        self._transport: asyncio.Transport | None = None
        self._asked: deque[_Asked] = deque()
        self._partial = bytearray()
        self._next_correlation_id = 0
        self._lost: str | None = None

    @property
    def closed(self) -> bool:
        return self._lost is not None

    def ask(self, encode: Callable[[int], bytes]) -> asyncio.Future[bytes]:
        """The answer to the frame that `encode` makes for a correlation id, or PeerFailedError.
        Cancelling the future keeps the connection open; the answer is dropped.
        """
        if self._lost is not None or self._transport is None:
            raise PeerFailedError(self._lost or "not connected", sent=False)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_MAX
        frame = encode(correlation_id)
        asked = _Asked(correlation_id, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        self._transport.write(frame)
        return asked.answer

    def abort(self, why: str) -> None:
        """Close at once; every request under way fails with `why`."""
        if self._lost is None:
            self._lost = f"{self.name}: {why}"
        if self._transport is not None:
            self._transport.abort()
        asked, self._asked = self._asked, deque()
        for each in asked:
            if not each.answer.done():
                each.answer.set_exception(PeerFailedError(self._lost))

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not subclass asyncio's.
        transport = cast(asyncio.Transport, made)
        self._transport = transport
        if self._lost is not None:
            transport.abort()
        elif hasattr(socket, "TCP_USER_TIMEOUT"):
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MAX_MS
            )

    def connection_lost(self, error: Exception | None) -> None:
        self.abort(f"the connection was lost ({error or 'closed by the other node'})")

    def data_received(self, data: bytes) -> None:
        if self._partial:
            self._partial += data
            if len(self._partial) < SIZE.size + self._size_at(self._partial, 0):
                return
            data = bytes(self._partial)
            self._partial.clear()
        at, end = 0, len(data)
        while end - at >= SIZE.size and self._lost is None:
            frame_end = at + SIZE.size + self._size_at(data, at)
            if frame_end > end:
                break
            self._answered(data[at + SIZE.size : frame_end])
            at = frame_end
        if at < end and self._lost is None:
            self._partial += data[at:]

    def _size_at(self, data: bytes | bytearray, at: int) -> int:
        if len(data) - at < SIZE.size:
            return RESPONSE_BYTES_MAX
        size: int = SIZE.unpack_from(data, at)[0]
        if not SIZE.size <= size <= RESPONSE_BYTES_MAX:
            self.abort(f"an answer of {size} bytes is announced: is it a quorum listener?")
            return RESPONSE_BYTES_MAX
        return size

    def _answered(self, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[:4])
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            self.abort(f"an answer to {correlation_id}, which is not the oldest open request")
            return
        asked = self._asked.popleft()
        if not asked.answer.done():
            asked.answer.set_result(frame)


async def open_connection(
    name: str, address: tuple[str, int], security: PeerSecurity, *, new_nonce: Callable[[], str]
) -> PeerConnection:
    """Connect, negotiate, log in; the caller bounds the time. PeerFailedError: nothing was sent."""
    loop = asyncio.get_running_loop()
    connection = PeerConnection(name)
    try:
        await loop.create_connection(lambda: connection, *address, ssl=security.tls)
    except ssl.SSLCertVerificationError as error:
        raise PeerFailedError(
            f"{name}: its certificate is not accepted ({error.verify_message}); check the quorum's "
            "certificate authority and the names in its certificate",
            sent=False,
        ) from error
    except (OSError, ValueError) as error:  # UnicodeError: an invalid host name
        raise PeerFailedError(f"{name}: cannot connect ({error})", sent=False) from error
    try:
        await _negotiate(connection)
        if security.credentials is not None:
            await _log_in(connection, security.credentials, new_nonce)
    except (FrameError, PeerFailedError, Refused, InvalidRequest) as error:
        connection.abort(str(error))
        raise PeerFailedError(str(error), sent=False) from error
    except BaseException:
        connection.abort("it took too long to log in")
        raise
    return connection


async def _negotiate(connection: PeerConnection) -> None:
    answer = await _exchange(connection, Api.API_VERSIONS, _API_VERSIONS_VERSION, {})
    connection.versions = {
        each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]
    }


async def _log_in(
    connection: PeerConnection, credentials: SaslCredentials, new_nonce: Callable[[], str]
) -> None:
    answer = await _exchange(
        connection, Api.SASL_HANDSHAKE, 1, {"mechanism": credentials.mechanism}
    )
    if answer["error_code"]:
        raise Refused(
            f"{connection.name} does not offer {credentials.mechanism}; it offers "
            f"{', '.join(answer['mechanisms']) or 'nothing: give it the secret file'}"
        )
    client = sasl_client(credentials, new_nonce)
    message: bytes | None = client.first_message()
    for _ in range(_SASL_ROUNDS_MAX):
        if message is None:
            return
        answer = await _exchange(
            connection, Api.SASL_AUTHENTICATE, _SASL_VERSION, {"auth_bytes": message}
        )
        if answer["error_code"]:
            raise Refused(
                f"{connection.name} refuses the quorum's secret: the secret file must be the same "
                "on every node"
            )
        loop = asyncio.get_running_loop()
        message = await loop.run_in_executor(_LOGINS, client.answer, answer["auth_bytes"])
    if message is not None:
        raise Refused(f"{connection.name} does not finish the {credentials.mechanism} exchange")


async def _exchange(
    connection: PeerConnection, api: Api, version: int, body: dict[str, Any]
) -> dict[str, Any]:
    frame = await connection.ask(
        lambda correlation_id: frames.encode_request(api, version, correlation_id, body)
    )
    return frames.decode_response(api, version, frame)
