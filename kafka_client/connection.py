"""One client connection that speaks the Kafka protocol: kio's schemas over asyncio streams.

Strandline's own requests use the last version without tagged fields if there is one: kio refuses
unknown tags, and Kafka may add tags to existing versions.

One request at a time; the answer is the next frame. A request that fails half-way (lost connection,
deadline, malformed answer) leaves the stream at an unknown position, so the connection closes and
every later request fails at once.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from kio.schema.api_versions.v2 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v1 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from kafka_client.frame_check import FrameError, frame_end
from kafka_client.sasl import SaslCredentials, sasl_client
from kafka_formats.errors import CorruptData, InvalidRequest, Refused, RetryLater

CLIENT_ID = "strandline"
RESPONSE_BYTES_MAX = 16 << 20
CLOSE_DEADLINE_S = 1.0
_SIZE = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">ihhi")
"""Size, API key, version, correlation id."""
_CORRELATION_BYTES = 4
_SASL_ROUNDS_MAX = 4
_SHOWN_CHARACTERS_MAX = 200
_CORRELATION_MAX = 2**31

Response = TypeVar("Response", bound=ResponsePayload)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address and how to connect to it. `tls` None: plain text; `sasl` None: no login.

    `connect_deadline_s` covers TCP, TLS, ApiVersions and SASL.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    sasl: SaslCredentials | None = None
    connect_deadline_s: float = 10.0
    request_deadline_s: float = 10.0
    response_bytes_max: int = RESPONSE_BYTES_MAX

    @property
    def name(self) -> str:
        """`host:port`, for messages."""
        return f"{self.host}:{self.port}"


class AnswerTooLargeError(CorruptData):
    """An answer of more bytes than are accepted: ask for less."""


class Connection:
    """An open, authenticated connection, made by `Connection.open`."""

    def __init__(
        self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._one_at_a_time = asyncio.Lock()
        self._next_correlation_id = 0
        self._api_versions: dict[int, tuple[int, int]] = {}
        self._closed = False

    @classmethod
    async def open(cls, endpoint: Endpoint, *, new_nonce: Callable[[], str]) -> Self:
        """Connect, negotiate and log in.

        RetryLater: the server is unreachable or too slow. Refused: certificate or credentials are
        not accepted. CorruptData: it does not speak Kafka's protocol. InvalidRequest: it lacks an
        API that is needed.
        """
        try:
            async with asyncio.timeout(endpoint.connect_deadline_s):
                connection = cls(endpoint, *await _connect(endpoint))
                try:
                    await connection._negotiate()
                    if endpoint.sasl is not None:
                        await connection._log_in(endpoint.sasl, new_nonce)
                except BaseException:
                    connection.abort()
                    raise
                return connection
        except TimeoutError as error:
            raise RetryLater(
                f"{endpoint.name} did not accept a connection within "
                f"{endpoint.connect_deadline_s:g} s; check that it is a Kafka listener"
            ) from error

    @property
    def closed(self) -> bool:
        """True if no further request can succeed."""
        return self._closed

    @property
    def lost(self) -> bool:
        """True also if the server has ended the connection, even without a request since."""
        reader = self._reader
        return self._closed or reader.at_eof() or reader.exception() is not None

    @property
    def is_encrypted(self) -> bool:
        """True if the connection uses TLS."""
        return self._endpoint.tls is not None

    @property
    def peer_host(self) -> str:
        """The server's IP address; empty once it is unknown."""
        return str((self._writer.get_extra_info("peername") or ("",))[0])

    @property
    def name(self) -> str:
        """`host:port`, for messages."""
        return self._endpoint.name

    def supports(self, request: type[RequestPayload]) -> bool:
        """True if the server announced this version of this API."""
        low, high = self._api_versions.get(int(request.__api_key__), (0, -1))
        return low <= int(request.__version__) <= high

    async def ask(self, request: RequestPayload, response_type: type[Response]) -> Response:
        """Send a request and wait for its answer; the caller handles error codes in it.

        RetryLater on a lost connection or after `request_deadline_s`, CorruptData for a malformed
        answer; the connection is closed then. InvalidRequest, with nothing sent, for an API version
        that the server lacks.
        """
        if not self.supports(type(request)):
            raise InvalidRequest(
                f"{self.name} does not support {type(request).__name__} version "
                f"{request.__version__}; Kafka 3.1 or newer has it"
            )
        async with self._one_at_a_time:
            return await self._exchange(request, response_type)

    @property
    def api_versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version of each API that the server announced."""
        return self._api_versions

    async def relay(self, frame: bytes, *, deadline_s: float) -> bytes:
        """Send a different client's request unchanged, its size included, and wait for its answer,
        which is returned without its size. RetryLater on a lost connection or after the deadline,
        CorruptData for an answer to a different request; the connection is closed then.
        """
        async with self._one_at_a_time:
            correlation_id = _REQUEST_HEAD.unpack_from(frame)[-1]
            return await self._exchange_frames(
                frame, correlation_id, "a relayed request", deadline_s
            )

    async def close(self) -> None:
        """Close in order, within `CLOSE_DEADLINE_S`. Idempotent."""
        self._closed = True
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._writer.wait_closed()

    def abort(self) -> None:
        """Close at once."""
        self._closed = True
        self._writer.transport.abort()

    async def _exchange(self, request: RequestPayload, response_type: type[Response]) -> Response:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_MAX
        encoded, name = _encoded(request, correlation_id), type(request).__name__
        deadline_s = self._endpoint.request_deadline_s
        frame = await self._exchange_frames(encoded, correlation_id, name, deadline_s)
        try:
            return _decoded(frame, response_type)
        except (SerialError, ValueError, LookupError, OverflowError) as error:
            self.abort()
            raise self._corrupt(f"a malformed {response_type.__name__} ({error})") from error

    async def _exchange_frames(
        self, frame: bytes, correlation_id: int, name: str, deadline_s: float
    ) -> bytes:
        """The answer's frame, after a check of its correlation id."""
        if self._closed:
            raise RetryLater(f"the connection to {self.name} is closed")
        try:
            async with asyncio.timeout(deadline_s):
                self._writer.write(frame)
                await self._writer.drain()
                return await self._read_frame(correlation_id)
        except TimeoutError as error:
            self.abort()
            raise RetryLater(
                f"{self.name} did not answer {name} within {deadline_s:g} s"
            ) from error
        except (OSError, asyncio.IncompleteReadError) as error:
            self.abort()
            raise RetryLater(f"{self.name} closed the connection ({error})") from error
        except BaseException:
            # Also when cancelled: the late answer would be taken for that of the next request.
            self.abort()
            raise

    async def _read_frame(self, correlation_id: int) -> bytes:
        size = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))[0]
        if not _CORRELATION_BYTES <= size <= self._endpoint.response_bytes_max:
            kind = CorruptData if size < _CORRELATION_BYTES else AnswerTooLargeError
            raise kind(
                f"an answer of {size} bytes is announced, but at most "
                f"{self._endpoint.response_bytes_max} are accepted; is it a Kafka listener of this "
                "security protocol?",
                source=self.name,
            )
        frame = await self._reader.readexactly(size)
        found = _SIZE.unpack_from(frame)[0]
        if found != correlation_id:
            raise self._corrupt(f"the answer to request {correlation_id} names request {found}")
        return frame

    async def _negotiate(self) -> None:
        # Not by `ask`, which needs the versions.
        response = await self._exchange(ApiVersionsRequest(), ApiVersionsResponse)
        if response.error_code is not ErrorCode.none:
            raise RetryLater(f"{self.name} answered ApiVersions with {response.error_code.name}")
        self._api_versions = {
            int(api.api_key): (int(api.min_version), int(api.max_version))
            for api in response.api_keys
        }

    async def _log_in(self, credentials: SaslCredentials, new_nonce: Callable[[], str]) -> None:
        handshake = await self.ask(
            SaslHandshakeRequest(mechanism=credentials.mechanism), SaslHandshakeResponse
        )
        if handshake.error_code is not ErrorCode.none:
            offered = repr(", ".join(handshake.mechanisms)[:_SHOWN_CHARACTERS_MAX] or "none")
            raise Refused(
                f"{self.name} does not support SASL mechanism {credentials.mechanism}; "
                f"it offers: {offered}"
            )
        client = sasl_client(credentials, new_nonce)
        message: bytes | None = client.first_message()
        for _ in range(_SASL_ROUNDS_MAX):
            if message is None:
                return
            answer = await self.ask(
                SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
            )
            if answer.error_code is not ErrorCode.none:
                raise Refused(
                    f"{self.name} refuses {credentials.mechanism} as {credentials.username!r}: "
                    f"{(answer.error_message or '')[:_SHOWN_CHARACTERS_MAX]!r} "
                    f"({answer.error_code.name})"
                )
            message = await asyncio.to_thread(client.answer, answer.auth_bytes)
        raise Refused(f"{self.name} did not finish the {credentials.mechanism} exchange")

    def _corrupt(self, message: str) -> CorruptData:
        return CorruptData(message, source=self.name)


async def _connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(endpoint.host, endpoint.port, ssl=endpoint.tls)
    except ssl.SSLCertVerificationError as error:
        raise Refused(
            f"the certificate of {endpoint.name} is not accepted ({error.verify_message}); "
            "check ssl_ca_file and the host name"
        ) from error
    # UnicodeError: an invalid host name. OverflowError: an invalid port.
    except (OSError, ValueError, OverflowError) as error:
        raise RetryLater(f"cannot connect to {endpoint.name} ({error})") from error


def _encoded(request: RequestPayload, correlation_id: int) -> bytes:
    """A whole frame: size, header, payload."""
    buffer = io.BytesIO()
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(correlation_id),
        client_id=CLIENT_ID,
    )
    entity_writer(header_type)(buffer, header)
    entity_writer(type(request))(buffer, request)
    payload = buffer.getvalue()
    return _SIZE.pack(len(payload)) + payload


def _decoded(frame: bytes, response_type: type[Response]) -> Response:
    """Header and payload of an answer. Every length is checked before kio uses it."""
    header_type = response_type.__header_schema__
    payload_at = frame_end(header_type, frame, 0)
    end = frame_end(response_type, frame, payload_at)
    if end != len(frame):
        raise FrameError(f"{len(frame) - end} bytes after its end")
    entity_reader(header_type)(frame, 0)
    return entity_reader(response_type)(frame, payload_at)[0]
