"""The README's settings and commands, as they are typed; only places are others, and no broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.real.ports import free_ports
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.command import environment

README = Path(__file__).resolve().parents[2] / "README.md"
AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request"
DEADLINE_S = 60


def block(start: str) -> str:
    """The fenced block of the README that begins with this."""
    (found,) = re.findall(rf"^```\w*\n({re.escape(start)}.*?)^```", README.read_text(), re.M | re.S)
    return str(found)


@pytest.fixture
def bucket() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = PLAIN.put(f"http://{host}:{port}/kafka-tier", headers={"Authorization": AUTHORIZATION})
    assert made.status_code == 200
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def shell(tmp_path: Path, bucket: str) -> dict[str, str]:
    """The README's settings file, and the environment of who types its lines."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, end=15)
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = secret\n")
    credentials.chmod(0o600)
    settings = re.sub(r"^broker .*\n", "", block("# strandline.toml"), flags=re.M)
    for place, ours in {
        "/var/lib/strandline": str(tmp_path / "data"),
        "/var/lib/kafka/data": str(orders.log_dir),
        "127.0.0.1:9000": bucket,
        "/etc/strandline/credentials": str(credentials),
    }.items():
        assert settings.count(place) == 1
        settings = settings.replace(place, ours)
    (tmp_path / "strandline.toml").write_text(settings)
    (port,) = free_ports(1)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return environment() | {
        "PATH": path,
        "STRANDLINE_HTTP__PORT": str(port),
        "STRANDLINE_URL": f"http://127.0.0.1:{port}",
    }


def test_the_lines_of_the_readme_work_with_its_settings(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    lines = block("strandline format").splitlines()
    typed = {line.split()[1]: line for line in lines}
    assert list(typed) == ["format", "doctor", "node", "status", "partitions", "pause"]

    def run(name: str) -> str:
        done = subprocess.run(
            ["bash", "-c", typed[name]],
            cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == ExitCode.OK, done.stdout + done.stderr
        return done.stdout

    run("format")
    with subprocess.Popen(
        ["bash", "-c", f"exec {typed['node']}"],
        cwd=tmp_path, env=shell, stderr=subprocess.PIPE, text=True,
    ) as node:  # fmt: skip
        try:
            assert node.stderr is not None
            assert any("copied" in line for line in node.stderr)
            assert re.search(r"segments, copy finished\s+1\b", run("status"))
            assert re.search(r"^orders\b", run("partitions"), re.M)
            the_first_questions_are_answered_as_shown(tmp_path, shell)
            run("pause")
            assert "copying" in run("status")
        finally:
            node.terminate()


def the_first_questions_are_answered_as_shown(tmp_path: Path, shell: dict[str, str]) -> None:
    """With the same fields; what is in them is of another topic."""
    lines = block("$ curl").splitlines()
    assert len(lines) == 4
    for question, shown in zip(lines[::2], lines[1::2], strict=True):
        asked = question.removeprefix("$ ").replace(
            "http://127.0.0.1:9480", shell["STRANDLINE_URL"]
        )
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {asked}"],
            cwd=tmp_path, env=shell, capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert done.returncode == ExitCode.OK, done.stderr
        assert list(json.loads(done.stdout)) == list(json.loads(shown))


def test_the_readme_takes_ten_minutes() -> None:
    assert len(README.read_text().splitlines()) < 150
