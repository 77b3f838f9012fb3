"""Doctor's checks of the network: listening addresses, quorum peers, certificates, the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from kafka_formats.errors import StrandlineError
from rlm.leadership.leadership import Leads, NoAnswer
from rlm.local_log.log_dir import LocalPartition
from rlmm.data_directory.data_directory import METADATA
from rlmm.log.disk import OsDisk
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import list_snapshots, snapshot_file_name, snapshot_voters
from strandline.doctor.certificate_validity import valid_until_s
from strandline.doctor.finding import Finding
from strandline.doctor.formatted_identity import FormattedIdentity
from strandline.doctor.host import in_use
from strandline.doctor.tried_addresses import trouble_to_connect, trouble_to_listen
from strandline.node import ambient
from strandline.node.broker_connection import open_broker_view
from strandline.node.formatting import broker_identity
from strandline.node.quorum import read_secret
from strandline.settings.kafka import ANNOUNCED
from strandline.settings.settings import Settings
from strandline.settings.voter_text import parse_address, parse_peer

EXPIRY_WARNING_DAYS = 14
PARTITIONS_ASKED_MAX = 1_000
_DAY_S = 86_400


def check_listening(settings: Settings) -> Iterator[Finding]:
    """Try to listen on the configured addresses, unless the node is running."""
    running = in_use(settings.node.data_dir)
    wanted = {"http": (settings.http.host, settings.http.port)}
    if settings.quorum.listen:
        try:
            wanted["quorum.listen"] = parse_address(settings.quorum.listen, field="quorum.listen")
        except StrandlineError as error:
            yield Finding("quorum.listen", False, str(error))
    for name, (host, port) in wanted.items():
        check = f"{name} {host}:{port}"
        if running:
            yield Finding(check, True, "not tried: the node is running")
            continue
        trouble = trouble_to_listen(host, port)
        yield Finding(check, trouble is None, trouble or "free to listen on")


async def check_quorum(settings: Settings, identity: FormattedIdentity | None) -> list[Finding]:
    """Check the shared secret, and connect to the other nodes."""
    quorum = settings.quorum
    findings = []
    if quorum.secret_file is not None:
        try:
            read_secret(quorum.secret_file)
        except StrandlineError as error:
            findings.append(Finding("quorum secret", False, str(error)))
    if identity is None:
        return findings
    try:
        peers = _peers(settings, identity.node_id)
    except StrandlineError as error:
        return [*findings, Finding("quorum", False, str(error))]
    if not peers:
        return [*findings, Finding("quorum", True, "this node knows no other voter")]
    if not quorum.listen:
        detail = "the quorum has other nodes, which must connect to this one: set quorum.listen"
        findings.append(Finding("quorum", False, detail))
    return [*findings, *await asyncio.gather(*(_reach(*peer) for peer in sorted(peers)))]


def _peers(settings: Settings, node_id: int) -> set[tuple[int, str, int]]:
    """(node id, host, port) of the other nodes: those of quorum.bootstrap and the voters of the
    newest snapshot.
    """
    peers = {parse_peer(each, field="quorum.bootstrap") for each in settings.quorum.bootstrap}
    directory = settings.node.data_dir / METADATA / PARTITION_DIRECTORY
    for snapshot in list_snapshots(OsDisk(), directory)[-1:]:
        for voter in snapshot_voters(OsDisk(), directory / snapshot_file_name(snapshot)):
            peers |= {(voter.node_id, each.host, each.port) for each in voter.endpoints}
    return {peer for peer in peers if peer[0] != node_id}


async def _reach(node_id: int, host: str, port: int) -> Finding:
    check = f"quorum node {node_id} at {host}:{port}"
    trouble = await trouble_to_connect((host, port))
    if trouble is not None:
        detail = f"{trouble}: start that node, or correct its address or the firewalls between"
        return Finding(check, False, detail)
    return Finding(check, True, "accepts connections")


def check_certificates(settings: Settings) -> Iterator[Finding]:
    """Check each certificate with its key in a TLS handshake, and the days until it expires."""
    http, quorum, kafka, read = settings.http, settings.quorum, settings.kafka, settings.read
    files = (
        ("http.tls_certificate_file", http.tls_certificate_file, http.tls_key_file, False),
        ("quorum.tls_certificate_file", quorum.tls_certificate_file, quorum.tls_key_file, False),
        ("kafka.ssl_certificate_file", kafka.ssl_certificate_file, kafka.ssl_key_file, True),
        ("read.tls_certificate_file", read.tls_certificate_file, read.tls_key_file, False),
    )
    for setting, certificate, key, of_client in files:
        if certificate is not None and key is not None:
            yield _certificate(f"{setting} {certificate}", certificate, key, of_client=of_client)


def _certificate(check: str, certificate: Path, key: Path, *, of_client: bool) -> Finding:
    try:
        until_s = valid_until_s(certificate, key, of_client=of_client)
    except OSError as error:
        return Finding(check, False, f"can't be used with {key}: {error}")
    days = int((until_s - ambient.now_ms() / 1_000) // _DAY_S)
    until = f"{datetime.fromtimestamp(until_s, UTC):%Y-%m-%d %H:%M:%SZ}"
    if days < EXPIRY_WARNING_DAYS:
        return Finding(check, False, f"expires in {days} days, on {until}: renew it")
    return Finding(check, True, f"valid until {until}, {days} days")


async def check_broker(settings: Settings, tiered: Sequence[LocalPartition]) -> list[Finding]:
    """Check that the broker answers, is the right one, and knows the partitions to be tiered."""
    check = f"broker {settings.kafka.broker}".strip()
    if not settings.kafka.broker:
        return [Finding(check, True, "kafka.broker is not set: directories without a broker")]
    if settings.kafka.broker == ANNOUNCED:
        return [Finding(check, True, "not tried: its plug-in announces its address to the node")]
    try:
        identity = broker_identity(settings.kafka.log_dirs)
        if identity is None:
            return [Finding(check, False, "set kafka.log_dirs, which name the broker's id")]
        broker = open_broker_view(
            settings.kafka, node_id=identity.node_id, kafka_cluster_id=identity.cluster_id
        )
        asked = [
            (each.partition.topic, each.partition.partition)
            for each in tiered[:PARTITIONS_ASKED_MAX]
        ]
        try:
            await broker.check()
            words = await broker.leadership(asked)
            configs = await broker.topic_configs(sorted({topic for topic, _ in asked}))
        finally:
            await broker.close()
    except StrandlineError as error:
        return [Finding(check, False, str(error))]
    findings = [Finding(check, True, f"node {identity.node_id} answers")]
    answers = {f"{topic}-{partition}": word for (topic, partition), word in words.items()} | {
        f"the configs of {topic}": config for topic, config in configs.items()
    }
    silent = {of: word.reason for of, word in answers.items() if isinstance(word, NoAnswer)}
    if silent:
        of, why = next(iter(silent.items()))
        detail = f"{len(silent)} of {len(answers)} requests have no answer, among them {of}: {why}"
        findings.append(
            Finding(f"{check}: topics", False, f"{detail}. Grant the node DESCRIBE on the topics")
        )
    elif words:
        leads = sum(isinstance(word, Leads) for word in words.values())
        detail = f"leads {leads} of {len(words)} partitions that are to be tiered"
        findings.append(Finding(f"{check}: topics", True, detail))
    return findings
