"""Sends an envelope to a different node, on its own connection: the answer may take long, and
answers on a connection come in the order of the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from kafka_client.frame_check import FrameError
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.wire import frames
from rlmm.wire.frames import VERSIONS, Api
from rlmm.wire.peer_connection import PeerConnection, PeerSecurity, open_connection

CONNECT_DEADLINE_S = 5.0
"""The deadline of TCP, TLS and login together."""


async def send_envelope(
    security: PeerSecurity,
    new_nonce: Callable[[], str],
    address: tuple[str, int],
    envelope: Envelope,
    deadline_s: float,
) -> bytes:
    """The answer's data. PeerFailedError: no answer in time; `sent` False: it had no effect."""
    name = f"{address[0]}:{address[1]}"
    connection: PeerConnection | None = None
    asked = False
    try:
        async with asyncio.timeout(deadline_s):
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                connection = await open_connection(name, address, security, new_nonce=new_nonce)
            version = _version(connection)
            body = {
                "request_data": envelope.request,
                "request_principal": envelope.principal,
                "client_host_address": b"",
            }
            answer = connection.ask(
                lambda correlation_id: frames.encode_request(
                    Api.ENVELOPE, version, correlation_id, body
                )
            )
            asked = True
            return _data(name, version, await answer)
    except TimeoutError as error:
        what = f"no answer within {deadline_s:g} s" if asked else "no connection in time"
        raise PeerFailedError(f"{name}: {what}", sent=asked, late=True) from error
    finally:
        if connection is not None:
            connection.abort("it was answered, or is no longer awaited")


def _version(connection: PeerConnection) -> int:
    """The version of envelopes that the peer supports. PeerFailedError if its older release
    supports none.
    """
    version = VERSIONS[Api.ENVELOPE][1]
    low, high = connection.versions.get(Api.ENVELOPE, (0, -1))
    if not low <= version <= high:
        raise PeerFailedError(
            f"{connection.name} takes no requests from other nodes: its release is older, upgrade "
            "it",
            unsupported_version=True,
            sent=False,
        )
    return version


def _data(name: str, version: int, frame: bytes) -> bytes:
    try:
        body = frames.decode_response(Api.ENVELOPE, version, frame)
    except FrameError as error:
        raise PeerFailedError(f"{name}: a malformed answer ({error})") from error
    match body["error_code"], body["response_data"]:
        case 0, bytes(data):
            return data
        case ErrorCode.broker_not_available.value, _:
            raise PeerFailedError(f"{name}: it is starting or stopping", sent=False)
        case ErrorCode.cluster_authorization_failed.value, _:
            raise PeerFailedError(
                f"{name}: it does not accept this node as one of the cluster; compare the quorum's "
                "secret file, or peer_names with this node's certificate",
                sent=False,
            )
        case code, _:
            raise PeerFailedError(f"{name}: it answers with Kafka's error {code}")
