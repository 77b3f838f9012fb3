"""`strandline doctor` of a read replica whose brokers are away, or which it may not enter. With
brokers and several replicas: tests/e2e/test_read_replicas.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlmm.data_directory.data_directory import open_data_directory
from strandline.cli.exit_codes import ExitCode
from strandline.doctor.finding import Finding
from tests.real.ports import free_ports
from tests.strandline.doctor.test_network import write_certificate
from tests.strandline.doctor_home import Home


@contextmanager
def listening(port: int, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((host, port))
        taken.listen()
        yield taken


@pytest.fixture
def port(formatted: Home) -> int:
    """Where the replica listens; nobody is where its brokers should be."""
    listen, nobody = free_ports(2)
    formatted.sections["read"] = {"listen": f"127.0.0.1:{listen}"}
    formatted.sections["kafka"] = formatted.sections.get("kafka", {}) | {
        "bootstrap": [f"127.0.0.1:{nobody}"]
    }
    return listen


def found(home: Home, port: int, *, code: ExitCode = ExitCode.INCOMPLETE) -> Finding:
    return home.findings(code=code)[f"read listener 127.0.0.1:{port}"]


def test_before_the_start_ports_have_to_be_free_and_a_broker_has_to_answer(
    formatted: Home, port: int
) -> None:
    assert found(formatted, port).ok
    with listening(port):
        busy = found(formatted, port)
    assert not busy.ok
    assert f"port {port}: a different process listens there" in busy.detail
    silent = formatted.wrong(f"read listener 127.0.0.1:{port}: brokers")
    assert "no broker of 127.0.0.1:" in silent


def test_a_running_node_where_nobody_listens(formatted: Home, port: int) -> None:
    with open_data_directory(formatted.data):
        silent = found(formatted, port)
    assert not silent.ok
    assert f"127.0.0.1:{port}" in silent.detail


def test_where_clients_need_a_certificate_no_more_is_asked_than_whether_it_listens(
    formatted: Home, port: int
) -> None:
    certificate, key = write_certificate(formatted.path / "tls", days=99)
    formatted.sections["read"] |= {
        "authentication": "certificate",
        "topics": ["*"],
        "tls_certificate_file": certificate,
        "tls_key_file": key,
        "tls_ca_file": certificate,
    }
    with open_data_directory(formatted.data):
        with listening(port):
            opened = found(formatted, port, code=ExitCode.OK)
        closed = found(formatted, port)
    assert opened.ok
    assert "read.tls_ca_file" in opened.detail
    assert not closed.ok
    assert "no connection" in closed.detail


@pytest.mark.parametrize(
    "read", [{"sasl_mechanisms": ["SCRAM-SHA-512"]}, {"advertised": "127.0.0.2"}]
)
def test_the_nodes_password_is_shown_to_nobody_in_the_clear_and_not_where_it_is_not_taken(
    formatted: Home, port: int, read: dict[str, object]
) -> None:
    password = formatted.path / "password"
    password.write_text("wonder land")
    password.chmod(0o600)
    formatted.sections["read"] |= {"authentication": "sasl", **read}
    formatted.sections["kafka"] |= {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "node",
        "sasl_password_file": str(password),
    }
    host = str(read.get("advertised", "127.0.0.1"))
    with open_data_directory(formatted.data), listening(port, host) as listener:
        opened = found(formatted, port, code=ExitCode.OK)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(1) == b""
    assert opened.ok
    assert "does not log in" in opened.detail
