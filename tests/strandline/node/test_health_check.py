"""The container's health check: which node it asks, and what it says of an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from strandline.node.health_check import DEFAULT_HOST, DEFAULT_PORT, ask, http_settings, main
from strandline.settings.settings import HttpSettings


class Answers(BaseHTTPRequestHandler):
    """Answers with the server's `status`."""

    def do_GET(self) -> None:
        self.send_response(self.server.status if self.path == "/healthz" else 404)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Answers) as made:
        made.status = 200  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_its_defaults_are_the_settings_defaults() -> None:
    assert HttpSettings().host == DEFAULT_HOST
    assert HttpSettings().port == DEFAULT_PORT


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "strandline.toml"
    file.write_text('[http]\nhost = "127.0.0.1"\nport = 7\n')
    assert http_settings({}, file) == {"host": "127.0.0.1", "port": 7}
    over = {"STRANDLINE_HTTP__HOST": "0.0.0.0", "STRANDLINE_HTTP__PORT": "8"}
    assert http_settings(over, file) == {"host": "0.0.0.0", "port": "8"}


def test_all_addresses_are_asked_on_loopback(server: HTTPServer) -> None:
    ask({"host": "0.0.0.0", "port": server.server_port})


def test_another_answer_or_none_is_not_healthy(
    server: HTTPServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "strandline.toml"
    file.write_text(f"[http]\nport = {server.server_port}\n")
    assert main([str(file)]) == 0
    server.status = 503  # type: ignore[attr-defined]
    assert main([str(file)]) == 1
    assert "answered 503" in capsys.readouterr().err
    file.write_text("[http]\nport = 1\n")
    assert main([str(file)]) == 1
    file.write_text("[http\n")
    assert main([str(file)]) == 1
    assert main([str(tmp_path / "absent.toml")]) == 1
