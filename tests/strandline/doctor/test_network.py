"""`strandline doctor`: addresses, certificates, the quorum's nodes, what the broker answers."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from kio.schema.describe_configs.v3 import DescribeConfigsRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets import v5
from kio.schema.metadata.v8 import MetadataRequest
from kio.schema.types import BrokerId

from rlm.local_log.log_dir import find_partitions
from rlmm.data_directory.data_directory import open_data_directory
from strandline.cli.exit_codes import ExitCode
from strandline.doctor.finding import Finding
from strandline.doctor.network import check_broker
from strandline.settings.loading import load_settings
from tests.capture.captured import CLUSTER_ID, LOG_DIR, NODE_ID
from tests.kafka_client.fake_broker import NO_THROTTLE, fake_broker
from tests.real.ports import free_ports
from tests.rlm.leadership.test_broker_view import configs, metadata, refuse_configs
from tests.strandline.command import invoke
from tests.strandline.doctor_home import Home

ITSELF = replace(metadata().brokers[0], node_id=BrokerId(NODE_ID))
TOPIC = 2
CONFIGS: dict[str, str | None] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "remote.storage.enable": "false",
}
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def write_certificate(
    folder: Path, *, days: float, usage: x509.ObjectIdentifier = SERVER
) -> tuple[str, str]:
    """A certificate for so many days from now on, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "node")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    paths[1].chmod(0o600)
    return str(paths[0]), str(paths[1])


@pytest.mark.parametrize(("section", "prefix"), [("http", "tls"), ("kafka", "ssl")])
def test_a_certificate_is_good_for_long_enough_and_for_its_purpose(
    formatted: Home, section: str, prefix: str
) -> None:
    good, other = (SERVER, CLIENT) if section == "http" else (CLIENT, SERVER)

    def found(days: float, usage: x509.ObjectIdentifier = good, key: str = "") -> Finding:
        certificate, own_key = write_certificate(formatted.path / "tls", days=days, usage=usage)
        files: dict[str, object] = {
            f"{prefix}_certificate_file": certificate,
            f"{prefix}_key_file": key or own_key,
        }
        formatted.sections[section] = formatted.sections.get(section, {}) | files
        code = ExitCode.OK if days > 14 and usage is good and not key else ExitCode.INCOMPLETE
        return formatted.findings(code=code)[f"{section}.{prefix}_certificate_file {certificate}"]

    assert "99 days" in found(99.5).detail
    assert "expires in 3 days" in found(3.5).detail
    assert "expired" in found(-1).detail
    assert "purpose" in found(99.5, other).detail
    strange_key = write_certificate(formatted.path / "strange", days=99)[1]
    assert strange_key in found(99.5, key=strange_key).detail


def test_an_address_that_is_taken_or_is_not_of_this_machine(formatted: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        formatted.sections["http"] = {"port": port}
        check = f"http 127.0.0.1:{port}"
        assert "a different process listens" in formatted.wrong(check)
        with open_data_directory(formatted.data):
            assert formatted.findings(code=ExitCode.OK)[check].ok
    assert formatted.findings(code=ExitCode.OK)[check].ok
    tokens = formatted.path / "tokens"
    tokens.write_text(f"alice admin {'0' * 64}\n")
    elsewhere: dict[str, object] = {
        "host": "192.0.2.1",
        "tokens_file": str(tokens),
        "anonymous_role": "none",
    }
    formatted.sections["http"] = elsewhere
    findings = formatted.findings()
    (http,) = [name for name in findings if name.startswith("http 192.0.2.1:")]
    assert "name an address of this machine" in findings[http].detail


def test_the_quorums_other_nodes_are_reached_or_named(home: Home) -> None:
    here, there, gone = free_ports(3)
    ids = [invoke("random-uuid").stdout.strip() for _ in range(4)]
    voters = ",".join(
        f"{number}@127.0.0.1:{port}:{id_}"
        for number, port, id_ in zip((NODE_ID, 2, 3), (here, there, gone), ids, strict=False)
    )
    home.sections["quorum"] = {"bootstrap": [f"{NODE_ID}@127.0.0.1:{here}"]}
    form = ("--cluster-id", ids[3], "--initial-voters", voters)
    assert invoke("format", "--config", home.config, *form).exit_code == 0
    with socket.socket() as other:
        other.bind(("127.0.0.1", there))
        other.listen()
        findings = home.findings()
    assert findings[f"quorum node 2 at 127.0.0.1:{there}"].ok
    silent = findings[f"quorum node 3 at 127.0.0.1:{gone}"]
    assert not silent.ok
    assert "start that node" in silent.detail
    assert "set quorum.listen" in findings["quorum"].detail
    assert not [name for name in findings if name.startswith(f"quorum node {NODE_ID} ")]


def test_a_secret_of_the_quorum_that_anybody_could_guess(formatted: Home) -> None:
    secret = formatted.path / "secret"
    secret.write_text("hunter2")
    secret.chmod(0o600)
    formatted.sections["quorum"] = {"secret_file": str(secret)}
    detail = formatted.wrong("quorum secret")
    assert "openssl rand" in detail
    assert "hunter2" not in detail


def offsets(code: ErrorCode) -> Callable[[v5.ListOffsetsRequest], Any]:
    """The broker leads the first partition of each topic that is asked for, or says `code`."""
    response = v5.response

    def answer(request: v5.ListOffsetsRequest) -> v5.ListOffsetsResponse:
        topics = tuple(
            response.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    response.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=code if each.partition_index else ErrorCode.none,
                        offset=each.timestamp + 43,  # type: ignore[arg-type]  # any good number
                        leader_epoch=each.current_leader_epoch + 6,  # type: ignore[arg-type]  # so
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return v5.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=topics)

    return answer


async def broker_findings(home: Home, script: dict[type[Any], Any]) -> dict[str, Finding]:
    """By the last word of the check."""
    tiered = [
        each
        for each in find_partitions([LOG_DIR], kafka_cluster_id=CLUSTER_ID).partitions
        if each.partition.topic == "orders"
    ]
    async with fake_broker(script) as broker:
        home.sections["kafka"] |= {"broker": f"127.0.0.1:{broker.port}"}
        settings = load_settings(home.config).settings
        found = await check_broker(settings, tiered)
    return {each.check.split()[-1]: each for each in found}


async def test_the_broker_has_to_tell_of_each_topic_that_is_to_be_tiered(home: Home) -> None:
    script: dict[type[Any], Any] = {
        MetadataRequest: lambda _: replace(metadata(cluster_id=CLUSTER_ID), brokers=(ITSELF,)),
        DescribeConfigsRequest: lambda request: configs(request, CONFIGS),
        v5.ListOffsetsRequest: offsets(ErrorCode.not_leader_or_follower),
    }
    findings = await broker_findings(home, script)
    assert findings["topics"] == Finding(
        findings["topics"].check, True, "leads 1 of 3 partitions that are to be tiered"
    )
    denied = ErrorCode.topic_authorization_failed
    refused = await broker_findings(home, script | {v5.ListOffsetsRequest: offsets(denied)})
    assert not refused["topics"].ok
    assert "2 of 4 requests" in refused["topics"].detail
    assert "topic_authorization_failed for orders-1" in refused["topics"].detail

    def refuse_topics(request: DescribeConfigsRequest) -> Any:
        about_topics = request.resources[0].resource_type == TOPIC
        return refuse_configs(denied)(request) if about_topics else configs(request, CONFIGS)

    refused = await broker_findings(home, script | {DescribeConfigsRequest: refuse_topics})
    assert "the configs of orders" in refused["topics"].detail
