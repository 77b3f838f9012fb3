"""Doctor's check of the read listener: its ports are free before the node starts, and its answers
to a Kafka client while the node runs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable, Iterator

from kafka_client.connection import Connection, Endpoint
from kafka_client.sasl import SaslCredentials
from kafka_formats.errors import StrandlineError
from kafka_listener.connections.brokers import OWN_METADATA_VERSION, Brokers, BrokerSecurity, ask
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.node_rewriting import brokers_in
from kafka_listener.virtual_nodes import Address, Replica, VirtualNodes, not_shown, port_of
from strandline.doctor.finding import Finding
from strandline.doctor.host import in_use
from strandline.doctor.tried_addresses import (
    CONNECT_DEADLINE_S,
    trouble_to_connect,
    trouble_to_listen,
)
from strandline.node import ambient
from strandline.node.broker_connection import broker_security
from strandline.settings.fields import LOOPBACK_HOSTS
from strandline.settings.read import READABLE, ReadSettings
from strandline.settings.settings import Settings

ASK_DEADLINE_S = 10.0
NODES_TRIED_MAX = 100


async def check_read_listener(settings: Settings) -> list[Finding]:
    """Findings about the read listener; `read.listen` must be set."""
    try:
        security = broker_security(settings.kafka)
        if in_use(settings.node.data_dir):
            return await _as_a_client(settings, security)
        return await _free_ports(settings, security)
    except StrandlineError as error:
        return [Finding(_name(settings.read), False, str(error))]


def _name(read: ReadSettings) -> str:
    return f"read listener {read.listen}"


async def _free_ports(settings: Settings, security: BrokerSecurity) -> list[Finding]:
    """Findings about the listener's own port and the port for each broker."""
    bootstrap = settings.kafka.bootstrap_addresses()
    brokers = Brokers(bootstrap, "", ambient.monotonic, ambient.new_nonce, security)
    name, (host, port) = _name(settings.read), settings.read.address
    try:
        await brokers.refresh()
    except StrandlineError as error:
        asked = ", ".join(f"{host}:{port}" for host, port in bootstrap)
        detail = f"no broker of {asked} answers with the cluster's brokers: {error}"
        found = [Finding(f"{name}: brokers", False, detail)]
    else:
        found = list(_shown(name, Replica(0, host, port), brokers.known))
    finally:
        await brokers.close()
    ports = [port, *(port_of(port, each) for each in sorted(brokers.known))]
    troubles = {each: trouble_to_listen(host, each) for each in ports if each < 65_536}
    busy = [f"port {each}: {text}" for each, text in troubles.items() if text is not None]
    free = f"{len(troubles)} ports free to listen on"
    return [*found, Finding(name, not busy, "; ".join(busy) or free)]


def _shown(name: str, own: Replica, known: dict[int, Address]) -> Iterator[Finding]:
    left_out = not_shown(known, VirtualNodes.alone(own))
    check = f"{name}: brokers"
    if left_out:
        yield Finding(
            check,
            False,
            f"brokers {left_out} get no port: the port of read.listen plus their id is no valid "
            "port, or their id is not below 32768. Choose a lower port",
        )
    else:
        yield Finding(check, True, f"each of {len(known)} brokers has a port")


async def _as_a_client(settings: Settings, security: BrokerSecurity) -> list[Finding]:
    """Connect as a Kafka client, and then to each node of the answer's metadata."""
    read, name = settings.read, _name(settings.read)
    registered = read.registered()
    assert registered is not None
    try:
        tls = _trusting(read)
    except OSError as error:
        return [Finding(name, False, f"read.tls_certificate_file can't be used: {error}")]
    sasl = security.sasl if read.authentication == "sasl" else None
    why_not = _why_not_asked(read, registered.host, sasl)
    if why_not is not None:
        trouble = await trouble_to_connect((registered.host, registered.port))
        return [Finding(name, trouble is None, trouble or f"accepts connections; {why_not}")]
    endpoint = Endpoint(
        registered.host, registered.port, tls, sasl,
        connect_deadline_s=CONNECT_DEADLINE_S, request_deadline_s=ASK_DEADLINE_S,
    )  # fmt: skip
    connection = await Connection.open(endpoint, new_nonce=ambient.new_nonce)
    try:
        asked = {"topics": [], "allow_auto_topic_creation": False}
        body = await ask(connection, Api.METADATA, asked, version_max=OWN_METADATA_VERSION)
    finally:
        await connection.close()
    return [await _reached(name, brokers_in(body))]


def _why_not_asked(read: ReadSettings, host: str, sasl: SaslCredentials | None) -> str | None:
    """The reason why doctor sends no request after it connected; None if it may be a client. The
    node's password is for the brokers: it is never sent in the clear to the advertised address,
    where a different server may answer.
    """
    if read.authentication == "certificate":
        return "no request was sent, since clients need a certificate of read.tls_ca_file"
    if sasl is None:
        return None
    is_private = read.tls_certificate_file is not None or host in LOOPBACK_HOSTS
    if sasl.mechanism not in read.sasl_mechanisms or (
        sasl.mechanism in READABLE and not is_private
    ):
        return f"no request was sent, since the node does not log in there with {sasl.mechanism}"
    return None


async def _reached(name: str, told: dict[int, Address]) -> Finding:
    if not told:
        detail = "its metadata names no node: see the node's problem `read` in `strandline status`"
        return Finding(name, False, detail)
    nodes = sorted(told.items())[:NODES_TRIED_MAX]
    troubles = await asyncio.gather(*(trouble_to_connect(address) for _, address in nodes))
    silent = [
        f"{host}:{port}, {trouble}"
        for (_, (host, port)), trouble in zip(nodes, troubles, strict=True)
        if trouble is not None
    ]
    if silent:
        detail = (
            f"answers, but sends clients to {_few(silent)}: check read.advertised and the "
            "firewalls; a replica that has ended is left out after nodes.silence_max_s"
        )
        return Finding(name, False, detail)
    return Finding(name, True, f"answers, as do all {len(nodes)} nodes of its metadata")


def _few(texts: Iterable[str]) -> str:
    first, *rest = texts
    return first if not rest else f"{first}, and {len(rest)} more nodes that do not answer"


def _trusting(read: ReadSettings) -> ssl.SSLContext | None:
    """A context that trusts the listener's own certificate, if that has the advertised name; None
    without TLS.
    """
    if read.tls_certificate_file is None:
        return None
    context = ssl.create_default_context(cafile=read.tls_certificate_file)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
