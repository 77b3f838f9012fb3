"""The read listener of a node: Kafka consumers read the tier and, through it, the brokers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from api.metrics.read import ReadFigures, ReadMetrics
from kafka_formats.errors import InvalidRequest
from rlm.control.node_problem import NodeProblem
from strandline.node import ambient
from strandline.node.node import Node
from strandline.settings.read import ReadSettings

if TYPE_CHECKING:
    from kafka_listener.connections.listener import ReadAccess, ReadLimits, ReadListener
    from kafka_listener.connections.replica_watch import ReplicaWatch
    from kafka_listener.live_replicas import LiveReplicas

_WATCH = "look for other read replicas"


class ReadReplica:
    """The read replica of a node. It exists before its listener, and also if none is configured."""

    def __init__(self) -> None:
        self._listening: tuple[ReadListener, ReadSettings] | None = None

    def problems(self) -> Iterable[NodeProblem]:
        """The problems that keep clients from reading."""
        return self._listening[0].problems() if self._listening is not None else ()

    @asynccontextmanager
    async def serving(self, node: Node, metrics: ReadMetrics) -> AsyncIterator[None]:
        """Serve consumers inside this context, if `read.listen` is set. Raises InvalidRequest if an
        address can't be used, Refused if the brokers belong to a different cluster.
        """
        if not node.settings.read.listen:
            yield
            return
        listener = _listener(node, _tls(node.settings.read))
        looking = asyncio.create_task(_watch(node, listener.replicas).run(), name=_WATCH)
        node.parts.task_watch.watch((looking,))
        try:
            await listener.start()
            self._listening = listener, node.settings.read
            metrics.watch(partial(_figures, listener))
            yield
        finally:
            looking.cancel()
            await asyncio.wait((looking,))
            await listener.close()

    def reload_tls(self) -> bool:
        """Read the certificate files again, for new connections; False without files. Raises
        InvalidRequest if a file can't be used; the old ones stay in use then.
        """
        if self._listening is None:
            return False
        listener, read = self._listening
        tls = _tls(read)
        if tls is not None:
            listener.use_tls(tls)
        return tls is not None


def _listener(node: Node, tls: ssl.SSLContext | None) -> ReadListener:
    # The schemas of Kafka's protocol are slow to import, and seldom needed.
    from kafka_listener.connections.brokers import Brokers
    from kafka_listener.connections.leader_epochs import LeaderEpochs
    from kafka_listener.connections.leader_transactions import LeaderTransactions
    from kafka_listener.connections.listener import ReadListener
    from kafka_listener.live_replicas import LiveReplicas, replica_at
    from kafka_listener.reading.fetch_target import Prefer
    from kafka_listener.reading.tier_reading import TierReading
    from kafka_listener.virtual_nodes import REPLICA_IDS
    from strandline.node.broker_connection import broker_security

    if node.directory.node_id >= REPLICA_IDS:
        raise InvalidRequest(
            f"node id {node.directory.node_id} is too large for a read replica, which derives the "
            f"node ids in its metadata from it. Format the node with an id below {REPLICA_IDS}, or "
            "remove read.listen",
            field="read.listen",
        )
    settings = node.settings
    brokers = Brokers(
        settings.kafka.bootstrap_addresses(),
        node.directory.kafka_cluster_id,
        ambient.monotonic,
        ambient.new_nonce,
        broker_security(settings.kafka),
    )
    tier = TierReading(
        node.parts.reads,
        LeaderTransactions(brokers),
        LeaderEpochs(brokers),
        Prefer(settings.read.prefer),
        partial(ambient.sleep, 0.0),
        settings.copier.batch_bytes_max,
        node.parts.settings.why_disabled,
    )
    registered = settings.read.registered()
    assert registered is not None
    own = replica_at(node.directory.node_id, registered)
    replicas = LiveReplicas(own)
    limits, access = _limits(settings.read), _access(settings.read, tls)
    host = settings.read.address[0]
    return ReadListener(replicas, host, brokers, tier, ambient.sleep, limits, access)


def _watch(node: Node, replicas: LiveReplicas) -> ReplicaWatch:
    from kafka_listener.connections.replica_watch import ReplicaWatch

    return ReplicaWatch(replicas, node.metadata.registered_nodes, ambient.sleep)


def _access(read: ReadSettings, tls: ssl.SSLContext | None) -> ReadAccess:
    from kafka_listener.access.rights import ReadableTopics
    from kafka_listener.connections.listener import ReadAccess
    from kafka_listener.connections.logins import NOBODY_LOGS_IN, WITH_A_CERTIFICATE

    return ReadAccess(
        mechanisms=tuple(read.sasl_mechanisms) if read.authentication == "sasl" else None,
        why_not=WITH_A_CERTIFICATE if read.authentication == "certificate" else NOBODY_LOGS_IN,
        authorisation_s=read.authorisation_s,
        readable=ReadableTopics(read.given_topics),
        user_bytes_per_s=read.user_bytes_per_s,
        client_id_bytes_per_s=read.client_id_bytes_per_s,
        tls=tls,
    )


def _tls(read: ReadSettings) -> ssl.SSLContext | None:
    """The listener's context; None for plain text. Raises InvalidRequest if a file can't be
    used.
    """
    if read.tls_certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # With an empty password an encrypted key is an error; without one OpenSSL would prompt.
        context.load_cert_chain(read.tls_certificate_file, read.tls_key_file, "")
        if read.tls_ca_file is not None:
            context.load_verify_locations(read.tls_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(
            f"the read listener's certificate, key or CA file can't be used ({error}): they have "
            "to be PEM files, key and certificate must match, and the key must not be encrypted",
            field="read.tls_certificate_file",
        ) from error
    return context


def _limits(read: ReadSettings) -> ReadLimits:
    from kafka_listener.connections.listener import ReadLimits

    return ReadLimits(
        connections_max=read.connections_max,
        request_bytes_max=read.request_bytes_max,
        fetch_bytes_max=read.fetch_bytes_max,
        answers_bytes_max=read.answers_bytes_max,
        idle_deadline_s=read.idle_deadline_s,
        lost_ranges_are_gaps=read.lost_range == "gap",
    )


def _figures(listener: ReadListener) -> ReadFigures:
    counts = listener.counts
    return ReadFigures(
        connections=listener.connection_count,
        replicas_told=len(listener.replicas.nodes.replicas),
        replicas_silent=len(listener.replicas.silent),
        requests=counts.requests,
        tier_bytes=counts.tier_bytes,
        broker_bytes=counts.broker_bytes,
        not_available=counts.not_available_answers,
        lost_range=counts.lost_range_answers,
        refusals=counts.refusals,
        broken_off=counts.broken_off,
    )
