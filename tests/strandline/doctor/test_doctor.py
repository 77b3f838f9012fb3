"""`strandline doctor`: each check well and ill, and that it changes nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
from pathlib import Path

import pytest

from kafka_formats.errors import Refused
from rlm.local_log.hold_beside import DIRECTORY_NAME
from rlm.local_log.hold_names import hold_name
from rlm.local_log.hold_owner import become_owner
from rlmm.data_directory.data_directory import open_data_directory
from rsm_backends.filesystem import FilesystemStore
from strandline.cli.exit_codes import ExitCode
from strandline.doctor import host as doctor_host
from strandline.doctor.formatted_identity import formatted_identity
from strandline.doctor.host import filesystem_of, memory_limit_bytes
from strandline.node import ambient
from tests.real.ports import free_ports
from tests.rlm.kafka_logs import new_log_dir
from tests.strandline.command import CAPTURED, invoke
from tests.strandline.doctor_home import Home
from tests.strandline.test_readme import README


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
    assert f"0 of {len(findings)} checks found something wrong" in shown.stdout


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
    assert "free at least" in formatted.wrong(f"data directory {formatted.data}")


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
    assert "topics.include matches none" in formatted.wrong("log directories")


def test_topics_that_are_chosen_in_the_metadata_log_alone(formatted: Home) -> None:
    formatted.sections["topics"] = {"include": []}
    found = formatted.findings(code=ExitCode.OK)["log directories"]
    assert found.ok
    assert "only topics that were enabled with `strandline topics enable`" in found.detail


@pytest.mark.parametrize("own", [(), ("__consumer_offsets-0",)], ids=["none", "internal"])
def test_a_broker_without_topics_yet_is_no_finding(
    formatted: Home, tmp_path: Path, own: tuple[str, ...]
) -> None:
    """It makes internal ones by itself, as soon as a consumer joins a group."""
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(CAPTURED / "meta.properties", logs)
    for name in own:
        shutil.copytree(CAPTURED / name, logs / name)
    formatted.sections["kafka"] = {"log_dirs": [str(logs)]}
    found = formatted.findings(code=ExitCode.OK)["log directories"]
    assert found.ok
    assert "no topics yet" in found.detail


def test_a_broker_of_kafka_2_8_writes_no_topic_ids(formatted: Home, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(CAPTURED, logs)
    for path in logs.glob("*/partition.metadata"):
        path.unlink()
    formatted.sections["kafka"] = {"log_dirs": [str(logs)]}
    found = formatted.findings()
    detail = found[f"log directory {logs / 'orders-0'}"].detail
    assert "brokers write it from Kafka 3.0 on (2.8 does not yet)" in detail
    assert "directories of 3.0 and newer" in README.read_text(), "as its table of versions says"
    assert not found["log directories"].ok, "it has topics"
    assert "no topics yet" not in found["log directories"].detail


def test_a_tier_inside_a_log_directory_would_stop_the_broker(
    formatted: Home, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    (logs / "tier").mkdir(parents=True)
    shutil.copy(CAPTURED / "meta.properties", logs)
    formatted.sections["kafka"] = {"log_dirs": [str(logs)]}
    formatted.sections["stores.main"] = {"kind": "filesystem", "path": str(logs / "tier")}
    assert "the broker does not start" in formatted.wrong(f"stores.main.path {logs / 'tier'}")


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


def test_a_store_that_lets_nobody_delete_is_described_in_everything_else(
    formatted: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_store: object, _keys: object) -> None:
        raise Refused("not allowed; grant the store's user this")

    monkeypatch.setattr(FilesystemStore, "delete_many", refuse)
    findings = formatted.findings()
    wrong = {name: each.detail for name, each in findings.items() if not each.ok}
    assert wrong == {"store main: delete": "not allowed; grant the store's user this"}
    assert findings["store main: clock"].ok
    monkeypatch.setattr(FilesystemStore, "head", refuse)
    assert {"store main: head, CRC32C", "store main: clock"} <= {
        name for name, each in formatted.findings().items() if not each.ok
    }


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
    assert "none" in formatted.wrong("HTTP access")
    tokens = formatted.path / "tokens"
    formatted.sections["http"] = {"anonymous_role": "none", "tokens_file": str(tokens)}
    assert str(tokens) in formatted.wrong("HTTP access")
    tokens.write_text(f"alice admin {'0' * 64}\n")
    tokens.chmod(0o644)
    assert formatted.findings(code=ExitCode.OK)["HTTP access"].ok
    for mode in (0o664, 0o646):
        tokens.chmod(mode)
        assert f"chmod go-w {tokens}" in formatted.wrong("HTTP access")


def test_segments_that_the_nodes_user_may_not_read(
    formatted: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, access = f"log directory {CAPTURED}", os.access
    assert "segments can be read, on" in formatted.findings(code=ExitCode.OK)[check].detail
    (one, *_) = sorted(CAPTURED.glob("orders-0/*.log"))
    monkeypatch.setattr(os, "access", lambda path, mode: path != one and access(path, mode))
    detail = formatted.wrong(check)
    assert detail.startswith("1 of ")
    assert str(one) in detail
    formatted.sections["topics"] = {"include": ["codecs"]}
    assert formatted.findings(code=ExitCode.OK)[check].ok


def test_hold_directories_of_nobody_known(formatted: Home, tmp_path: Path) -> None:
    log_dir, hold = new_log_dir(tmp_path / "kafka"), tmp_path / "hold"
    formatted.sections["kafka"] = {"log_dirs": [str(log_dir)]}
    formatted.sections["hold"] = {"dirs": [str(hold)]}
    unit = "orders-0/AQEBAQEBAQEBAW9yZGVycw/00000000000000000000-00000000000000000010-9-1"
    (hold / "stranger-1" / unit).mkdir(parents=True)
    assert "and start it again" in formatted.wrong(f"hold {hold / 'stranger-1'}")
    assert "can be linked" in formatted.findings()[f"hold {hold}"].detail
    assert [each.name for each in hold.iterdir()] == ["stranger-1"]


def test_where_nothing_is_held_that_is_told(formatted: Home, tmp_path: Path) -> None:
    def detail() -> str:
        return formatted.findings()["hold"].detail

    formatted.sections["kafka"] = {"log_dirs": [str(new_log_dir(tmp_path / "kafka"))]}
    assert detail().startswith("segments are not held (kafka.broker is not set)")
    formatted.sections["kafka"]["broker"] = f"127.0.0.1:{free_ports(1)[0]}"
    formatted.sections["hold"] = {"dirs": []}
    assert detail().startswith("segments are not held (hold.dirs is [])")


def test_holding_beside_a_log_directory_and_where_it_is_refused(
    formatted: Home, tmp_path: Path
) -> None:
    log_dir, hold = new_log_dir(tmp_path / "kafka"), tmp_path / DIRECTORY_NAME
    formatted.sections["kafka"] = {
        "log_dirs": [str(log_dir)], "broker": f"127.0.0.1:{free_ports(1)[0]}",
    }  # fmt: skip
    formatted.sections["hold"] = {"free_bytes_min": 1}
    assert formatted.findings()[f"hold {hold}"].detail == f"segments of {log_dir} can be linked"
    assert not hold.exists()
    formatted.sections["hold"] = {"free_bytes_min": 1 << 52}
    assert "less than hold.free_bytes_min" in formatted.findings()[f"hold {hold}"].detail
    hold.write_text("taken")
    assert "set hold.dirs" in formatted.wrong(f"hold {log_dir}")


def test_a_hold_directory_in_use_by_another_cluster(formatted: Home, tmp_path: Path) -> None:
    log_dir, hold = new_log_dir(tmp_path / "kafka"), tmp_path / "hold"
    hold.mkdir()
    formatted.sections["kafka"] = {"log_dirs": [str(log_dir)]}
    formatted.sections["hold"] = {"dirs": [str(hold)]}
    identity = formatted_identity(formatted.data)
    assert identity is not None
    own = hold / hold_name(identity.kafka_cluster_id, identity.node_id)
    for cluster in (identity.cluster_id, "another"):
        owned = become_owner(own, cluster)
        if cluster == "another":
            assert "the Strandline cluster another" in formatted.wrong(f"hold {own}")
        else:
            assert f"hold {own}" not in formatted.findings()
        os.close(owned.descriptor)
    assert f"hold {own}" not in formatted.findings()


def test_a_tier_that_only_memory_holds_or_without_room(
    formatted: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = f"store main: folder {formatted.path / 'tier'}"
    together = formatted.findings(code=ExitCode.OK)[check].detail
    assert together.endswith("on the same disk as node.data_dir and lost with it") or (
        "the log directories and node.data_dir" in together
    )
    monkeypatch.setattr(doctor_host, "DISK_FREE_BYTES_MIN", 1 << 60)
    assert "make room" in formatted.wrong(check)
    monkeypatch.setattr(doctor_host, "VOLATILE", frozenset({filesystem_of(formatted.path)}))
    assert "use a disk" in formatted.wrong(check)


def test_more_memory_than_there_is(formatted: Home) -> None:
    assert "MiB needed" in formatted.findings(code=ExitCode.OK)["memory"].detail
    formatted.sections["copier"] |= {"part_bytes": 1 << 30, "parallel_max": 10_000}
    assert "lower copier.parallel_max" in formatted.wrong("memory")


def test_the_least_limit_of_the_control_groups_above_counts(tmp_path: Path) -> None:
    machine, whose = memory_limit_bytes(tmp_path / "no groups")
    assert whose == "the machine"
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_limit_bytes(tmp_path) == (machine, "the machine")
    (tmp_path / "memory.max").write_text(f"{300 << 20}\n")
    assert memory_limit_bytes(tmp_path) == (300 << 20, "the control group")
