"""A node that is to be a read replica and can't, and certificates that are read again."""

from __future__ import annotations

import shutil
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from api.metrics.read import ReadMetrics
from kafka_formats.errors import InvalidRequest
from kafka_listener.protocol.apis import Api
from kafka_listener.protocol.codec import Head, encode_request
from kafka_listener.virtual_nodes import REPLICA_IDS
from strandline.node.node import Node
from strandline.node.reading import ReadReplica, _access, _tls
from strandline.settings.read import ReadSettings
from tests.kafka_listener.connections.listening import Listening
from tests.kafka_listener.connections.scripted_broker import ScriptedBroker
from tests.kafka_listener.connections.tier_in_memory import TierInMemory
from tests.real.certificates import Certificate, make_certificate


async def test_a_node_id_that_no_virtual_node_is_made_of_is_refused_before_it_listens() -> None:
    node = SimpleNamespace(
        settings=SimpleNamespace(read=ReadSettings(listen="127.0.0.1:19092")),
        directory=SimpleNamespace(node_id=REPLICA_IDS),
    )
    with pytest.raises(InvalidRequest, match=f"below {REPLICA_IDS}") as refused:
        async with ReadReplica().serving(cast(Node, node), cast(ReadMetrics, None)):
            raise AssertionError("it serves")
    assert refused.value.field == "read.listen"


def is_answered(replica: Listening, client: Certificate) -> bool:
    """True if the replica answers a client with that certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(client.certificate, client.key)
    versions = encode_request(Head(Api.API_VERSIONS, 3, 1), "a client", {})
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", replica.port), timeout=30) as plain,
        tls.wrap_socket(plain) as connection,
    ):
        connection.sendall(versions)
        return bool(connection.recv(4))
    return False


def test_an_authority_that_was_taken_out_is_trusted_no_more_once_files_are_read_again(
    tmp_path: Path,
) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = (make_certificate(tmp_path / name) for name in ("old", "new"))
    read = ReadSettings(
        listen="127.0.0.1:19092", authentication="certificate",
        tls_certificate_file=new.certificate, tls_key_file=new.key, tls_ca_file=tmp_path / "ca.pem",
    )  # fmt: skip
    shutil.copy(old.certificate, tmp_path / "ca.pem")
    with (
        ScriptedBroker() as broker,
        Listening(broker.address, TierInMemory(), access=_access(read, _tls(read))) as replica,
    ):
        node = ReadReplica()
        node._listening = replica.listener, read
        assert is_answered(replica, old)
        shutil.copy(new.certificate, tmp_path / "ca.pem")
        assert node.reload_tls()
        assert is_answered(replica, new)
        assert not is_answered(replica, old)
        (tmp_path / "ca.pem").write_text("nonsense")
        with pytest.raises(InvalidRequest):
            node.reload_tls()
        assert is_answered(replica, new)
