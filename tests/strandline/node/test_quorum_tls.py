"""The TLS contexts of the quorum, made of its settings."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.node.quorum import _client_tls
from strandline.settings.settings import QuorumSettings
from tests.real.certificates import Certificate, make_certificate
from tests.real.toolbox import require_program

HOST = "127.0.0.1"
TRIED = """
from strandline.node.quorum import _client_tls, _server_tls
from strandline.settings.settings import QuorumSettings
for make in (_client_tls, _server_tls):
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
    by_the_machine = _client_tls(settings)
    by_name = _client_tls(settings.model_copy(update={"tls_ca_file": own.certificate}))
    assert by_the_machine is not None
    assert by_name is not None
    assert await is_believed(by_the_machine, public)
    assert await is_believed(by_name, own)
    assert not await is_believed(by_name, public)


def test_an_encrypted_key_is_an_error_and_nobody_is_asked_for_its_password(tmp_path: Path) -> None:
    (own,) = certificates(tmp_path, "own")
    key = tmp_path / "encrypted.pem"
    encrypt = [require_program("openssl"), "pkey", "-aes256", "-passout", "pass:secret"]
    subprocess.run([*encrypt, "-in", str(own.key), "-out", str(key)], check=True, timeout=60)
    with subprocess.Popen(
        [sys.executable, "-c", TRIED.format(certificate=str(own.certificate), key=str(key))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as trying:  # fmt: skip
        assert trying.stdout is not None
        try:
            trying.wait(timeout=30)  # its input stays open, as a terminal that nobody sits at
        finally:
            trying.kill()
        told = trying.stdout.read().splitlines()
    assert len(told) == 2
    for line in told:
        assert line.startswith(
            f"quorum.tls_certificate_file: {own.certificate} and {key} can't be used"
        )
        assert "must not be encrypted" in line
