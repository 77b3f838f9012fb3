"""The TLS contexts of the quorum, made of its settings."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from rlmm.data_directory.data_directory import (
    NewDirectory,
    format_data_directory,
    open_data_directory,
)
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.quorum.envelopes import Envelope
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.quorum.quorum_log import QuorumLog
from strandline.node.quorum import open_quorum_log
from strandline.node.quorum_tls import QuorumTls, client_tls
from strandline.settings.settings import QuorumSettings
from tests.real.certificates import Certificate, encrypted_key, make_certificate
from tests.real.nobody_at_the_terminal import lines_of
from tests.real.ports import free_ports

HOST = "127.0.0.1"
TRIED = """
from strandline.node.quorum_tls import client_tls, server_tls
from strandline.settings.settings import QuorumSettings
for make in (client_tls, server_tls):
    try:
        make(QuorumSettings(tls_certificate_file={certificate!r}, tls_key_file={key!r}))
    except Exception as error:
        print(error)
"""


def certificates(folder: Path, *names: str) -> list[Certificate]:
    made = []
    for name in names:
        (folder / name).mkdir()
        made.append(make_certificate(folder / name))
    return made


async def is_believed(tls: ssl.SSLContext, server: Certificate) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(hang_up, HOST, 0, ssl=context)
    try:
        _, writer = await asyncio.open_connection(
            HOST, listening.sockets[0].getsockname()[1], ssl=tls
        )
        writer.close()
    except ssl.SSLCertVerificationError:
        return False
    finally:
        listening.close()
        await listening.wait_closed()
    return True


async def test_where_an_authority_is_named_no_other_one_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's own list has a hundred, each of which could make a node for any address."""
    own, public = certificates(tmp_path, "own", "public")
    monkeypatch.setenv("SSL_CERT_FILE", str(public.certificate))
    settings = QuorumSettings(tls_certificate_file=own.certificate, tls_key_file=own.key)
    by_the_machine = client_tls(settings)
    by_name = client_tls(settings.model_copy(update={"tls_ca_file": own.certificate}))
    assert by_the_machine is not None
    assert by_name is not None
    assert await is_believed(by_the_machine, public)
    assert await is_believed(by_name, own)
    assert not await is_believed(by_name, public)


def test_an_encrypted_key_is_an_error_and_nobody_is_asked_for_its_password(tmp_path: Path) -> None:
    (own,) = certificates(tmp_path, "own")
    key = encrypted_key(own)
    told = lines_of(TRIED.format(certificate=str(own.certificate), key=str(key)))
    assert len(told) == 2
    for line in told:
        assert line.startswith(
            f"quorum.tls_certificate_file: {own.certificate} and {key} can't be used"
        )
        assert "must not be encrypted" in line


def formatted(path: Path, node_id: int = 1) -> None:
    key = Uuid(bytes(range(16)))
    voter = Voter(node_id, key, (Endpoint("QUORUM", HOST, 9),))
    format_data_directory(path, NewDirectory(key, "a Kafka cluster", node_id, key, (voter,)))


def shown_by(port: int) -> bytes:
    """The certificate of a listener, as DER."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((HOST, port), timeout=30) as plain,
        tls.wrap_socket(plain) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""


async def why_not(log: QuorumLog, server: Certificate) -> str:
    """The reason why a node that shows that certificate gets no envelope."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(hang_up, HOST, 0, ssl=context)
    address = (HOST, listening.sockets[0].getsockname()[1])
    assert log.envelopes.send is not None
    with pytest.raises(PeerFailedError) as failed:
        await log.envelopes.send(address, Envelope(b"", b""), 30.0)
    listening.close()
    await listening.wait_closed()
    return str(failed.value)


async def test_files_that_are_read_again_count_for_new_connections_and_wrong_ones_change_nothing(
    tmp_path: Path,
) -> None:
    old, new = certificates(tmp_path, "old", "new")
    own = tmp_path / "own"
    shutil.copytree(tmp_path / "old", own)
    (port,) = free_ports(1)
    settings = QuorumSettings(
        listen=f"{HOST}:{port}", peer_names=[HOST], tls_certificate_file=own / "cert.pem",
        tls_key_file=own / "key.pem", tls_ca_file=own / "cert.pem",
    )  # fmt: skip
    formatted(tmp_path / "data")
    tls = QuorumTls(settings)
    async with AsyncExitStack() as building:
        directory = building.enter_context(open_data_directory(tmp_path / "data"))
        log = await open_quorum_log(
            settings, directory, building, view_flushed_end=0, on_failure=pytest.fail, tls=tls
        )

        async def uses(files: Certificate, other: Certificate) -> None:
            pem = files.certificate.read_text()
            assert await asyncio.to_thread(shown_by, port) == ssl.PEM_cert_to_DER_cert(pem)
            assert "certificate is not accepted" in await why_not(log, other)
            assert "certificate is not accepted" not in await why_not(log, files)

        await uses(old, new)
        shutil.copytree(tmp_path / "new", own, dirs_exist_ok=True)
        await uses(old, new)
        assert tls.reload()
        await uses(new, old)
        shutil.copy(old.key, own / "key.pem")
        with pytest.raises(InvalidRequest, match="belong together"):
            tls.reload()
        await uses(new, old)


def test_without_a_listener_or_certificates_nothing_is_read_again(tmp_path: Path) -> None:
    (own,) = certificates(tmp_path, "own")
    assert not QuorumTls(QuorumSettings()).reload()
    files = QuorumSettings(tls_certificate_file=own.certificate, tls_key_file=own.key)
    assert not QuorumTls(files).reload()
