"""`strandline doctor`: each check well and ill, and that it changes nothing."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

import pytest

from rlmm.data_directory import open_data_directory
from strandline import ambient, doctor_host
from strandline.cli.exit_codes import ExitCode
from strandline.doctor_host import filesystem_of
from strandline.finding import Finding
from tests.e2e.node_process import NodeProcess
from tests.real.ports import free_ports
from tests.strandline.command import CAPTURED, invoke
from tests.strandline.conftest import sections


class Home:
    """A node's directory; `findings` are what doctor says of it, by check."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sections = sections(path / "tier")
        self.sections["http"] = {}

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def config(self) -> Path:
        process = NodeProcess(self.path, self.sections)
        process.write_config()
        return process.config

    def format(self) -> None:
        assert invoke("format", "--config", self.config).exit_code == 0

    def findings(self, *, code: ExitCode = ExitCode.INCOMPLETE) -> dict[str, Finding]:
        done = invoke("doctor", "--config", self.config, "--json")
        assert done.exit_code == code, done.output
        return {each["check"]: Finding(**each) for each in json.loads(done.stdout)}

    def wrong(self, check: str) -> str:
        """What doctor says to do about `check`, which it must find wrong."""
        found = self.findings()[check]
        assert not found.ok, found
        return found.detail


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    # The machine of the tests may keep its temporary folder in memory, or be short of room.
    monkeypatch.setattr(doctor_host, "VOLATILE", frozenset())
    monkeypatch.setattr(doctor_host, "DISK_FREE_BYTES_MIN", 0)
    return Home(tmp_path / "node")


@pytest.fixture
def formatted(home: Home) -> Home:
    home.format()
    return home


def test_a_node_that_can_start_has_nothing_wrong_and_nothing_left_behind(formatted: Home) -> None:
    findings = formatted.findings(code=ExitCode.OK)
    assert [each.check for each in findings.values() if not each.ok] == []
    checks = " ".join(findings)
    for what in ("put", "create-only", "CRC32C", "multipart", "delete", "clock", "cluster marker"):
        assert f"store main: {what}" in checks or what == "CRC32C"
    assert "CRC32C" in checks
    assert not [each for each in (formatted.path / "tier").rglob("*") if each.is_file()]
    shown = invoke("doctor", "--config", formatted.config)
    assert shown.exit_code == 0
    assert "WRONG" not in shown.stdout


def test_an_unformatted_directory(home: Home) -> None:
    assert "strandline format" in home.wrong(f"data directory {home.data}")
    assert not home.data.exists()
    assert "WRONG" in invoke("doctor", "--config", home.config).stdout


def test_a_directory_in_use_is_well_and_stays_in_use(formatted: Home) -> None:
    check = f"data directory {formatted.data}"
    with open_data_directory(formatted.data):
        assert "in use by a running node" in formatted.findings(code=ExitCode.OK)[check].detail
    assert "no node is running" in formatted.findings(code=ExitCode.OK)[check].detail


def test_a_directory_that_only_memory_holds(
    formatted: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = filesystem_of(formatted.data)
    monkeypatch.setattr(doctor_host, "VOLATILE", frozenset({kind}))
    assert "use a disk" in formatted.wrong(f"data directory {formatted.data}")


def test_the_file_system_of_a_path_is_the_innermost_mount() -> None:
    assert filesystem_of(Path("/proc/self")) == "proc"


def test_a_disk_without_room(formatted: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host, "DISK_FREE_BYTES_MIN", 1 << 60)
    assert "make room" in formatted.wrong(f"data directory {formatted.data}")


def test_too_few_open_files(formatted: Home) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert hard != resource.RLIM_INFINITY
    formatted.sections["http"] = {"connections_max": hard}
    assert "raise it" in formatted.wrong("open files")


def test_log_directories_that_are_none_or_not_there(formatted: Home) -> None:
    formatted.sections["kafka"] = {"log_dirs": [str(formatted.path)]}
    assert "not a Kafka log directory" in formatted.wrong("log directories")
    formatted.sections["kafka"] = {"log_dirs": []}
    assert "set kafka.log_dirs" in formatted.wrong("log directories")


def test_a_log_directory_of_another_cluster(formatted: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(CAPTURED / "meta.properties", other)
    text = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(text.replace("cluster.id=", "cluster.id=x"))
    formatted.sections["kafka"] = {"log_dirs": [str(other)]}
    assert "belongs to the Kafka cluster x" in formatted.wrong("log directories")


def test_topics_that_are_none(formatted: Home) -> None:
    formatted.sections["topics"] = {"include": ["nothing-is-named-so"]}
    assert "topics.include" in formatted.wrong("log directories")


def test_a_tier_inside_a_log_directory_would_stop_the_broker(
    formatted: Home, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    (logs / "tier").mkdir(parents=True)
    shutil.copy(CAPTURED / "meta.properties", logs)
    formatted.sections["kafka"] = {"log_dirs": [str(logs)]}
    formatted.sections["stores.main"] = {"kind": "filesystem", "path": str(logs / "tier")}
    assert "a broker refuses to start" in formatted.wrong(f"stores.main.path {logs / 'tier'}")


def test_a_broker_that_does_not_answer(formatted: Home) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    formatted.sections["kafka"] |= {"broker": address, "request_timeout_s": 2}
    assert address in formatted.wrong(f"broker {address}")


def test_a_store_folder_that_is_not_there(formatted: Home) -> None:
    (formatted.path / "tier").rmdir()
    assert "tier" in formatted.wrong("store main")


def test_no_store_at_all(formatted: Home) -> None:
    del formatted.sections["stores.main"]
    assert "[stores.main]" in formatted.wrong("stores")


def test_another_clusters_marker(formatted: Home) -> None:
    marker = formatted.path / "tier" / "_strandline" / "cluster.json"
    marker.parent.mkdir()
    fields = {"version": 1, "clusterId": "AAAAAAAAQACAAAAAAAAAAQ", "kafkaClusterId": None}
    marker.write_text(json.dumps(fields))
    assert "AAAAAAAAQACAAAAAAAAAAQ" in formatted.wrong("store main: cluster marker")
    marker.write_text("no marker")
    assert "not JSON" in formatted.wrong("store main: cluster marker")
    assert marker.read_text() == "no marker"


@pytest.mark.parametrize("skew_s", [-3_600, 3_600])
def test_a_clock_that_is_wrong(
    formatted: Home, monkeypatch: pytest.MonkeyPatch, skew_s: int
) -> None:
    right = ambient.now_ms
    monkeypatch.setattr(ambient, "now_ms", lambda: right() + skew_s * 1_000)
    detail = formatted.wrong("store main: clock")
    assert "set the node's clock" in detail
    assert "3600 s" in detail or "3599 s" in detail


def test_secrets_that_others_may_read(formatted: Home) -> None:
    password = formatted.path / "password"
    password.write_text("tell nobody")
    password.chmod(0o644)
    formatted.sections["kafka"] |= {"sasl_password_file": str(password)}
    check = f"kafka.sasl_password_file {password}"
    detail = formatted.wrong(check)
    assert f"chmod 600 {password}" in detail
    assert "tell nobody" not in detail
    password.chmod(0o600)
    assert formatted.findings(code=ExitCode.OK)[check].ok
    password.unlink()
    assert "can't be read" in formatted.wrong(check)


def test_nobody_may_ask(formatted: Home) -> None:
    formatted.sections["http"] = {"anonymous_role": "none"}
    assert "nobody" in formatted.wrong("who may ask")
    tokens = formatted.path / "tokens"
    formatted.sections["http"] = {"anonymous_role": "none", "tokens_file": str(tokens)}
    assert str(tokens) in formatted.wrong("who may ask")
    tokens.write_text(f"alice admin {'0' * 64}\n")
    assert formatted.findings(code=ExitCode.OK)["who may ask"].ok
