"""The container image: built from the Dockerfile in a clean root, and run beside a broker."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from rsm_backends.store_config import StoreConfig
from tests.e2e.bucket import store_settings
from tests.e2e.writer import Writer
from tests.real.certificates import Certificate, make_certificate
from tests.real.image_build import Image, Mount, build_image, start_in
from tests.real.kafka import KafkaBroker
from tests.real.ports import free_ports

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOPIC = "voyages"
TOKEN = "a token that only this test knows"
IMAGE_USER = 10001
DEADLINE_S = 60
COPIES = 3
CONFIG = "/etc/strandline"
HOST = "127.0.0.2"
"""As from outside: who listens on 127.0.0.1, a container's own loopback, does not answer there."""


class Container:
    """The image beside a broker: its settings and data are folders of this machine."""

    def __init__(self, image: Image, home: Path, broker: KafkaBroker, store: StoreConfig) -> None:
        self._image = image
        self._home = home
        self.port = free_ports(1)[0]
        for name in ("config", "data"):
            (home / name).mkdir(parents=True)
        self._config = config = home / "config"
        stored = store_settings(config, store)
        stored["credentials_file"] = f"{CONFIG}/credentials"
        (config / "tokens").write_text(f"test read {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
        sections: dict[str, dict[str, object]] = {
            "node": {"data_dir": "/var/lib/strandline/data"},
            "kafka": {"log_dirs": ["/var/lib/kafka"], "broker": broker.bootstrap},
            "topics": {"include": [TOPIC]},
            "stores.main": stored,
            "copier": {"interval_s": 0.3},
            "http": {"port": self.port, "tokens_file": f"{CONFIG}/tokens"},
        }
        (config / "strandline.toml").write_text(
            "".join(
                f"[{name}]\n" + "".join(f"{key} = {json.dumps(v)}\n" for key, v in values.items())
                for name, values in sections.items()
            )
        )
        for folder in (config, home / "data"):
            for path in (folder, *folder.iterdir()):
                os.chown(path, IMAGE_USER, IMAGE_USER)
        self._mounts = (
            Mount(config, CONFIG),
            Mount(home / "data", "/var/lib/strandline", writable=True),
            Mount(broker.log_dir, "/var/lib/kafka"),
        )
        self._runs = 0

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run to its end, as `docker run` or `docker exec` would."""
        process = self.start(*command)
        output, _ = process.communicate(timeout=DEADLINE_S)
        return subprocess.CompletedProcess(command, process.returncode, output)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start in a container of its own on the same folders."""
        self._runs += 1
        work = self._home / f"run-{self._runs}"
        return start_in(self._image, work, command, mounts=self._mounts)

    @property
    def command(self) -> tuple[str, ...]:
        """What the image starts."""
        return (*self._image.entrypoint, *self._image.command)

    def set_tls(self, made: Certificate) -> None:
        """Settings for the next start: HTTPS with this certificate."""
        for name, path in (("cert.pem", made.certificate), ("key.pem", made.key)):
            placed = self._config / name
            placed.write_bytes(path.read_bytes())
            os.chown(placed, IMAGE_USER, IMAGE_USER)
            placed.chmod(0o600)
        with (self._config / "strandline.toml").open("a") as settings:  # its last section is [http]
            settings.write(
                f'tls_certificate_file = "{CONFIG}/cert.pem"\ntls_key_file = "{CONFIG}/key.pem"\n'
            )

    def healthy(self) -> bool:
        return self.run(*self._image.health_check).returncode == 0

    def segments(self) -> int:
        """How many segments of the topic are finished, by the token's own question."""
        answer = httpx.get(
            f"http://{HOST}:{self.port}/v1/topics/{TOPIC}/partitions/0",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        return int(answer.json()["remote_segments"]) if answer.is_success else 0


@pytest.fixture(scope="module")
def image() -> Image:
    return build_image()


@pytest.fixture
def container(tmp_path: Path, image: Image, minio_store_config: StoreConfig) -> Iterator[Container]:
    store = replace(minio_store_config, prefix="e2e/image/")
    with KafkaBroker(tmp_path / "broker") as broker:
        config = {"internal.segment.bytes": "49152", "index.interval.bytes": "2048"}
        broker.create_topic(TOPIC, partitions=1, config=config)
        with Writer(broker.bootstrap, TOPIC, 1):
            broker.wait_until(
                lambda: len(broker.segment_files(TOPIC, 0)) > COPIES + 1, "sealed segments"
            )
        yield Container(image, tmp_path / "container", broker, store)


def wait_until(holds: Callable[[], bool], what: str, node: subprocess.Popen[str]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert node.poll() is None, node.communicate()[0][-4000:]
        assert time.monotonic() < end, what
        time.sleep(0.1)


def test_the_image_carries_the_compiled_modules_and_no_compiler(image: Image) -> None:
    packages = "/opt/strandline/lib/python3.11/site-packages"
    for module in ("pipeline/decode", "pipeline/jobs", "pipeline/rebuild"):
        folder = image.path(f"{packages}/{module}")
        assert folder is not None
        assert list(folder.glob("*.so")), module
    assert image.path("/usr/bin/gcc") is None


@contextmanager
def running(container: Container) -> Iterator[subprocess.Popen[str]]:
    """The image's own command, until it is left; healthy by the image's own check."""
    with container.start(*container.command) as node:
        try:
            wait_until(container.healthy, "the health check to pass", node)
            yield node
        finally:
            node.kill()


def test_the_node_of_the_image_copies_beside_a_broker_and_is_healthy(
    container: Container, tmp_path: Path
) -> None:
    formatted = container.run("strandline", "format")
    assert formatted.returncode == 0, formatted.stdout
    assert not container.healthy()
    with running(container) as node:
        wait_until(lambda: container.segments() >= COPIES, "copied segments", node)
        unasked = httpx.get(f"http://{HOST}:{container.port}/v1/cluster")
        assert unasked.status_code == 401
        node.send_signal(signal.SIGTERM)
        output, _ = node.communicate(timeout=DEADLINE_S)
        assert node.returncode == 0, output[-4000:]
    container.set_tls(make_certificate(tmp_path))
    with running(container) as node:
        assert node.poll() is None  # healthy over TLS, by the node's own certificate
