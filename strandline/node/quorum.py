"""This node's replica of the metadata log, its listener and its connections to the other nodes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_formats.errors import InvalidRequest, RetryLater
from rlmm.data_directory.data_directory import DataDirectory, metadata_topic_id
from rlmm.log.quorum_records import Endpoint
from rlmm.quorum.config import LISTENER_NAME, Ambient, Place, QuorumConfig
from rlmm.quorum.envelopes import Send
from rlmm.quorum.framing import voter_set
from rlmm.quorum.network_ports import NoPeers, Peers
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.quorum.server import DriverServer
from rlmm.quorum.troubles import CLIENTS
from rlmm.raft.messages import ReplicaKey
from rlmm.raft.timers import RaftSettings
from strandline.node import ambient
from strandline.node.quorum_tls import QuorumTls, client_tls, server_tls
from strandline.settings.settings import QuorumSettings
from strandline.settings.voter_text import parse_address, parse_peer

if TYPE_CHECKING:
    from ssl import SSLContext

    from rlmm.wire.listener import QuorumListener
    from rlmm.wire.peer_connection import PeerSecurity

SECRET_BYTES_MIN = 16
INCARNATION_CHANCE_BITS = 24


async def open_quorum_log(
    settings: QuorumSettings,
    directory: DataDirectory,
    building: AsyncExitStack,
    *,
    view_flushed_end: int,
    on_failure: Callable[[str], None],
    tls: QuorumTls | None = None,
) -> QuorumLog:
    """Recover the log, join its quorum, and listen if `quorum.listen` is set.

    `building` closes the parts. `tls` can replace the contexts of new connections afterwards.
    Raises InvalidRequest if the settings contradict the formatted voters, RetryLater if the address
    can't be listened on, and the errors of `QuorumLog.open`.
    """
    secret = None if settings.secret_file is None else read_secret(settings.secret_file)
    config = QuorumConfig(
        cluster_id=str(directory.cluster_id),
        key=ReplicaKey(directory.node_id, str(directory.directory_id)),
        format_voters=voter_set(directory.initial_voters),
        bootstrap=tuple(parse_peer(each, field="quorum.bootstrap") for each in settings.bootstrap),
        listener_name=LISTENER_NAME,
        settings=_timers(settings),
        incarnation=_incarnation(directory.boot_counter),
        endpoints=_advertised(settings),
    )
    alone = {voter.node_id for voter in directory.initial_voters} == {directory.node_id}
    if not settings.listen and not alone:
        raise InvalidRequest(
            "this node was formatted as one of several voters: set the address where it listens "
            "for the other nodes",
            field="quorum.listen",
        )
    security = _security(settings, secret) if settings.listen else None
    log = await QuorumLog.open(
        Place(directory.metadata_path),
        config,
        NoPeers() if security is None else _peers(directory, security),
        view_flushed_end=view_flushed_end,
        ambient=Ambient(ambient.now_ms, ambient.monotonic, ambient.sleep, ambient.random_fraction),
        on_failure=on_failure,
    )
    building.push_async_callback(log.close)
    if security is not None:
        log.envelopes.send = _sender(security)
        listener = await _listen(settings, directory, secret, log, building)
        if tls is not None:
            tls.use = partial(_use, listener, security)
    return log


def _use(
    listener: QuorumListener, security: PeerSecurity, server: SSLContext, client: SSLContext
) -> None:
    listener.use_tls(server)
    security.tls = client


def _advertised(settings: QuorumSettings) -> tuple[Endpoint, ...]:
    """The advertised endpoint, if set; the listening address is no substitute, since other nodes
    may not reach it.
    """
    if not settings.advertised:
        return ()
    return (
        Endpoint(LISTENER_NAME, *parse_address(settings.advertised, field="quorum.advertised")),
    )


def _incarnation(boot_counter: int) -> int:
    """An incarnation with random low bits: a copy of the data directory has the same boot counter,
    and must differ all the same.
    """
    chance = int(ambient.random_fraction() * (1 << INCARNATION_CHANCE_BITS))
    return boot_counter << INCARNATION_CHANCE_BITS | chance


def _timers(settings: QuorumSettings) -> RaftSettings:
    """The quorum's timers; a fetch waits at the leader for at most a quarter of the fetch
    timeout.
    """
    fetch_ms = settings.fetch_timeout_ms
    return RaftSettings(
        election_timeout_ms=settings.election_timeout_ms,
        fetch_timeout_ms=fetch_ms,
        fetch_wait_max_ms=min(500, fetch_ms // 4),
        request_timeout_ms=min(2_000, fetch_ms),
    )


def _peers(directory: DataDirectory, security: PeerSecurity) -> Peers:
    # Imported only for a quorum of several nodes: the Kafka protocol is slow to import.
    from rlmm.wire.peers import WirePeers

    return WirePeers(
        cluster_id=str(directory.cluster_id),
        topic_id=bytes(metadata_topic_id(directory.cluster_id)),
        security=security,
        monotonic=ambient.monotonic,
        new_nonce=ambient.new_nonce,
    )


def _security(settings: QuorumSettings, secret: str | None) -> PeerSecurity:
    from kafka_client.sasl import SaslCredentials
    from rlmm.wire.peer_connection import PeerSecurity
    from rlmm.wire.sasl_server import PEER_USER, SCRAM

    credentials = None if secret is None else SaslCredentials(SCRAM, PEER_USER, secret)
    return PeerSecurity(client_tls(settings), credentials)


def _sender(security: PeerSecurity) -> Send:
    from rlmm.wire.envelope_sender import send_envelope

    return partial(send_envelope, security, ambient.new_nonce)


async def _listen(
    settings: QuorumSettings,
    directory: DataDirectory,
    secret: str | None,
    log: QuorumLog,
    building: AsyncExitStack,
) -> QuorumListener:
    from rlmm.wire.authorisation import Authorisation
    from rlmm.wire.listener import QuorumListener
    from rlmm.wire.served_log import ListenerAmbient, ServedLog
    from rlmm.wire.server_connection import ListenerLimits

    cluster_id = directory.cluster_id
    listener = QuorumListener(
        DriverServer(log, now_ms=ambient.now_ms),
        ServedLog(
            str(cluster_id),
            directory.node_id,
            bytes(metadata_topic_id(cluster_id)),
            envelopes=log.envelopes,
        ),
        ListenerAmbient(
            ambient.sleep,
            lambda: ambient.now_ms() - int(ambient.monotonic() * 1000),
            ambient.new_nonce,
        ),
        authorisation=Authorisation(
            secret=secret,
            certificate_names=frozenset(settings.peer_names),
            anonymous_reads=settings.readers == "anyone",
        ),
        tls=server_tls(settings),
        limits=ListenerLimits(
            connections_max=settings.connections_max,
            anonymous_requests_per_s_max=settings.anonymous_requests_per_s_max,
            anonymous_answer_bytes_max=settings.anonymous_answer_bytes_max,
        ),
        trouble=partial(log.driver.troubles.repeated, CLIENTS),
    )
    host, port = parse_address(settings.listen, field="quorum.listen")
    building.push_async_callback(listener.close)
    try:
        await listener.start(host, port)
    except OSError as error:
        raise RetryLater(
            f"quorum.listen: can't listen on {settings.listen} ({error.strerror or error}): stop "
            "the process that uses it, or set an address of this machine"
        ) from error
    return listener


def read_secret(path: Path) -> str:
    """The quorum's shared secret. Raises InvalidRequest if the file can't be read or is too
    short.
    """
    try:
        secret = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"{path} can't be read ({error}): let the node's user read it, or correct the path",
            field="quorum.secret_file",
        ) from None
    if len(secret) < SECRET_BYTES_MIN:
        raise InvalidRequest(
            f"{path} has fewer than {SECRET_BYTES_MIN} characters, and a client that guesses the "
            "secret can delete everything: make one with `openssl rand -base64 32`",
            field="quorum.secret_file",
        )
    return secret
