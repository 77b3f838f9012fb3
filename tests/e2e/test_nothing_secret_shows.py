"""Keys, passwords and tokens stand in files. They show nowhere else: not in logs, not in process
lists, not in answers, not in what commands print.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from moto.server import ThreadedMotoServer

from rlm.control.log_levels import LogArea
from tests.capture.captured import LOG_DIR
from tests.e2e.node_process import NodeProcess
from tests.real.ports import free_ports

pytestmark = pytest.mark.integration

ACCESS_KEY, SECRET_KEY = "AKIAPLANTEDACCESSKEY", "planted/secret+access/key0123456789abcd"
SASL_PASSWORD = "planted-sasl-password"
QUORUM_SECRET = "planted-quorum-secret-0123456789abcdef"
TOKEN = "planted-token-of-an-admin-0123456789abcdef"
WRONG_TOKEN = "planted-wrong-token-0123456789abcdef"
AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request"
PLANTED = (ACCESS_KEY, SECRET_KEY, SASL_PASSWORD, QUORUM_SECRET, TOKEN, WRONG_TOKEN)


def write_secrets(folder: Path) -> None:
    """The files that the settings name."""
    folder.mkdir(parents=True)
    (folder / "credentials").write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    (folder / "sasl").write_text(SASL_PASSWORD)
    (folder / "quorum").write_text(QUORUM_SECRET)
    (folder / "tokens").write_text(f"boss admin {sha256(TOKEN.encode()).hexdigest()}\n")


@contextmanager
def far_store() -> Iterator[str]:
    """The address of an S3 that takes any key, with a bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        assert httpx.put(f"{url}/far", headers={"Authorization": AUTHORIZATION}).status_code == 200
        yield url
    finally:
        server.stop()


def node_with_secrets(tmp_path: Path, store_url: str) -> NodeProcess:
    """Its broker is not there, so that every attempt to reach it is logged."""
    secrets, (closed, quorum) = tmp_path / "secrets", free_ports(2)
    write_secrets(secrets)
    shutil.copytree(LOG_DIR, tmp_path / "kafka")
    (tmp_path / "store").mkdir()
    s3 = {
        "kind": "s3",
        "bucket": "far",
        "endpoint_url": store_url,
        "credentials_file": str(secrets / "credentials"),
        "attempts_max": 1,
    }
    return NodeProcess(
        tmp_path / "node",
        {
            "stores.main": {"kind": "filesystem", "path": str(tmp_path / "store")},
            "stores.far": s3,
            "kafka": {
                "log_dirs": [str(tmp_path / "kafka")],
                "broker": f"127.0.0.1:{closed}",
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "alice",
                "sasl_password_file": str(secrets / "sasl"),
            },
            "quorum": {
                "listen": f"127.0.0.1:{quorum}",
                "secret_file": str(secrets / "quorum"),
            },
            "http": {"tokens_file": str(secrets / "tokens"), "anonymous_role": "none"},
            "log": {"format": "json"},
            "log.levels": dict.fromkeys(LogArea, "debug"),
        },
        typed=True,
    )


def process_list(pid: int) -> str:
    """Arguments and environment of the node and its workers, as `ps` and /proc show them."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children, "the node has no worker"
    shown = subprocess.run(["ps", "axeww"], capture_output=True, check=True).stdout.decode()
    for each in (str(pid), *children):
        for name in ("cmdline", "environ"):
            shown += Path(f"/proc/{each}/{name}").read_bytes().decode(errors="replace")
    return shown


def answers(url: str) -> str:
    """Good answers and refusals, headers included, of a holder of the token and of one without."""
    paths = ("/v1/cluster", "/v1/quorum", "/v1/topics", "/v1/topics/x", "/metrics", "/v1/nothing")
    seen = ""
    for token in (TOKEN, WRONG_TOKEN, f"{WRONG_TOKEN} {TOKEN}"):
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
            replies = [client.get(path) for path in paths]
            replies.append(client.put("/v1/topics/x/policy", json={"retention_ms": token}))
        assert {reply.status_code for reply in replies} & ({200} if token == TOKEN else {401})
        seen += "".join(f"{reply.status_code} {reply.headers} {reply.text}" for reply in replies)
    return seen.replace(f'"{TOKEN}"', "")


def commands(node: NodeProcess) -> str:
    """What commands print that read the settings."""
    program = Path(sys.executable).with_name("strandline")
    seen = ""
    for name in ("config", "doctor"):
        done = subprocess.run(
            [str(program), name, "--config", str(node.config)], capture_output=True, timeout=60
        )
        seen += (done.stdout + done.stderr).decode(errors="replace")
    assert "far" in seen
    return seen


@contextmanager
def node_again(node: NodeProcess) -> Iterator[None]:
    """Started once more on the same directory."""
    try:
        node.start()
        yield
    finally:
        node.__exit__(None, None, None)


def test_nothing_secret_is_in_logs_process_lists_answers_or_output(tmp_path: Path) -> None:
    with far_store() as url:
        node = node_with_secrets(tmp_path, url)
        with node:
            shown = {
                "process list": process_list(node.pid),
                "answers": answers(node.url),
                "commands": commands(node),
            }
            node.stop()
    with node_again(node):  # one of its stores is gone: it says so and goes on
        node.wait_until(
            lambda: "Could not connect" in node.log, "word of the lost store", deadline_s=60
        )
    shown["log"] = node.log
    for where, text in shown.items():
        for secret in PLANTED:
            assert secret not in text, f"{secret} in the {where}"
