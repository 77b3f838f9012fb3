"""`format` and `node` as processes: start, stop, kill, tokens, and refusals to start."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kafka_formats.kafka_uuid import Uuid
from rlmm.data_directory.data_directory import open_data_directory
from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess, Sections
from tests.strandline.command import CAPTURED, environment, invoke, started, strandline
from tests.strandline.conftest import copied_segments, sections

CODECS_SEGMENTS = 3
DEADLINE_S = 60


def small_node(home: Path, **http: object) -> NodeProcess:
    """A node that copies one small topic."""
    return NodeProcess(
        home,
        sections(home / "tier") | {"topics": {"include": ["codecs"]}, "http": http},
        typed=True,
    )


@pytest.fixture
def small(tmp_path: Path) -> Iterator[NodeProcess]:
    with small_node(tmp_path / "node") as process:
        yield process


def wait_until_copied(process: NodeProcess) -> None:
    process.wait_until(
        lambda: copied_segments(process.url) == CODECS_SEGMENTS, "copies", deadline_s=DEADLINE_S
    )


def segment_ids(process: NodeProcess) -> list[str]:
    done = invoke("segments", "list", "codecs", 0, "--json", "--url", process.url)
    assert done.exit_code == 0, done.stderr
    return [each["segment_id"] for each in json.loads(done.stdout)]


def test_a_node_survives_a_kill_refuses_a_second_one_and_stops_cleanly(small: NodeProcess) -> None:
    wait_until_copied(small)
    before = segment_ids(small)
    assert len(before) == CODECS_SEGMENTS
    small.kill()
    with open_data_directory(small.config.parent / "data") as directory:
        boots = directory.boot_counter
    small.start()
    assert segment_ids(small) == before

    second = strandline("node", "--config", small.config)
    assert second.returncode == ExitCode.CONFLICT
    assert "is in use by another running node" in second.stderr
    assert httpx.get(f"{small.url}/readyz").status_code == 200

    os.kill(small.pid, signal.SIGTERM)  # and a second one while it stops changes nothing
    small.stop()
    assert small.log.rstrip().endswith("stopped")
    assert "Traceback" not in small.log
    # The lock is free, and the directory as whole as before.
    with open_data_directory(small.config.parent / "data") as directory:
        assert directory.boot_counter == boots + 2  # one start; the refused one did not count


def test_a_hang_up_claims_nothing_and_a_crash_in_a_librarys_own_code_leaves_a_word(
    small: NodeProcess,
) -> None:
    os.kill(small.pid, signal.SIGHUP)
    small.wait_until(
        lambda: "no file was read again" in small.log, "word of it", deadline_s=DEADLINE_S
    )
    assert "were read again" not in small.log, "it has neither tokens nor certificates"
    os.kill(small.pid, signal.SIGSEGV)
    with pytest.raises(RuntimeError, match="killed by SIGSEGV"):
        small.wait_until(lambda: False, "its end", deadline_s=DEADLINE_S)
    # Its end alone may be longer than the last words that are quoted.
    assert "Fatal Python error: Segmentation fault" in small.log


def test_a_node_runs_without_a_store_that_is_not_the_default_one(tmp_path: Path) -> None:
    home = tmp_path / "node"
    folder = home / "not-mounted"
    parts: Sections = {
        **sections(home / "tier"),
        "topics": {"include": ["codecs"]},
        "stores.old": {"kind": "filesystem", "path": str(folder)},
    }
    with NodeProcess(home, parts) as process:
        wait_until_copied(process)
        (problem,) = httpx.get(f"{process.url}/v1/cluster").json()["problems"]
        assert (problem["about"], problem["name"]) == ("store", "old")
        assert str(folder) in problem["text"]
        shown = invoke("status", "--url", process.url)
        assert "problem with store old" in shown.stdout
        assert "Traceback" not in process.log


def test_ctrl_c_stops_a_node_as_cleanly_as_sigterm(tmp_path: Path) -> None:
    home = tmp_path / "node"
    small = small_node(home)
    small.format()
    process = started("node", "--config", small.config)
    try:
        assert process.stderr is not None
        assert any("serves http://127.0.0.1" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert "stopped" in errors


def token_line(name: str, token: str) -> str:
    return f"{name} read {hashlib.sha256(token.encode()).hexdigest()}\n"


def test_tokens_are_asked_for_and_read_again_at_sighup(tmp_path: Path) -> None:
    tokens, own = tmp_path / "tokens", tmp_path / "own-token"
    tokens.write_text(token_line("first", "first-token-of-the-test"))
    own.write_text("first-token-of-the-test\n")
    with small_node(tmp_path / "node", anonymous_role="none", tokens_file=str(tokens)) as process:
        status = ("status", "--url", process.url)
        without = invoke(*status)
        assert without.exit_code == ExitCode.REFUSED
        assert "token" in without.stderr
        assert invoke(*status, "--token-file", own).exit_code == 0

        tokens.write_text("this is no tokens file at all\n")
        os.kill(process.pid, signal.SIGHUP)
        process.wait_until(
            lambda: "kept the old tokens" in process.log, "a refusal", deadline_s=DEADLINE_S
        )
        assert invoke(*status, "--token-file", own).exit_code == 0

        tokens.write_text(token_line("second", "second-token-of-the-test"))
        os.kill(process.pid, signal.SIGHUP)
        process.wait_until(
            lambda: "were read again" in process.log, "new tokens", deadline_s=DEADLINE_S
        )
        assert invoke(*status, "--token-file", own).exit_code == ExitCode.REFUSED
        assert "token-of-the-test" not in process.log
        assert "the stores' credentials are read again" in process.log
        assert "worker process" not in process.log, "a hang-up ends no worker"


def write_config(home: Path, **changed: dict[str, object]) -> Path:
    """A settings file of a node under `home`; `changed` replaces whole sections."""
    process = NodeProcess(home, sections(home / "tier") | changed)
    process.write_config()
    return process.config


def test_format_makes_a_directory_once_and_takes_its_identity_from_the_broker(
    tmp_path: Path,
) -> None:
    config = write_config(tmp_path / "node")
    first = invoke("format", "--config", config)
    assert first.exit_code == 0, first.stderr
    assert f"formatted {tmp_path}/node/data" in first.stdout
    with open_data_directory(tmp_path / "node" / "data") as directory:
        meta = (CAPTURED / "meta.properties").read_text()
        assert f"cluster.id={directory.kafka_cluster_id}" in meta
        assert f"node.id={directory.node_id}" in meta
    second = invoke("format", "--config", config)
    assert second.exit_code == ExitCode.CONFLICT
    assert "is formatted already" in second.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node-id", 77), "the log directory has 1"),
        (("--kafka-cluster-id", "other"), "the log directory has"),
        (("--cluster-id", "xyz"), "Uuid"),
        (("--node-id", "x"), "--node-id"),
    ],
)
def test_format_refuses_an_identity_that_can_not_be(
    tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    config = write_config(tmp_path / "node")
    done = invoke("format", "--config", config, *arguments)
    assert done.exit_code == ExitCode.USAGE
    assert words in done.stderr
    assert not (tmp_path / "node" / "data").exists()


@pytest.mark.parametrize("named", ["cluster id", "bootstrap"])
def test_format_makes_a_quorum_of_one_in_a_named_cluster_only_where_that_is_said(
    tmp_path: Path, named: str
) -> None:
    """A voter that lost its disk would become the only voter of the same cluster."""
    changed: dict[str, dict[str, object]] = {}
    if named == "bootstrap":
        changed = {"quorum": {"bootstrap": ["2@strand-2:9481"]}}
    config = write_config(tmp_path / "node", **changed)
    cluster = () if changed else ("--cluster-id", str(Uuid(b"cluster-id......")))
    refused = invoke("format", "--config", config, *cluster)
    assert refused.exit_code == ExitCode.USAGE
    for way in ("--no-initial-voters", "--initial-voters", "--standalone"):
        assert way in refused.stderr
    assert not (tmp_path / "node" / "data").exists()
    both = invoke("format", "--config", config, *cluster, "--standalone", "--no-initial-voters")
    assert both.exit_code == ExitCode.USAGE
    done = invoke("format", "--config", config, *cluster, "--standalone")
    assert done.exit_code == 0, done.stderr


def test_format_leaves_a_directory_alone_that_holds_something_else(tmp_path: Path) -> None:
    config = write_config(tmp_path / "node")
    data = tmp_path / "node" / "data"
    data.mkdir()
    (data / "thesis.txt").write_text("years of work")
    done = invoke("format", "--config", config)
    assert done.exit_code == ExitCode.CONFLICT
    assert "thesis.txt" in done.stderr
    assert (data / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"copier": {"intervall_s": 5}}, "copier.intervall_s: unknown setting"),
        ({"coppier": {"interval_s": 5}}, "coppier: unknown setting"),
        ({"copier": {"parallel_max": 0}}, "copier.parallel_max"),
        ({"worker": {"count": -1}}, "worker.count"),
        ({"http": {"host": "0.0.0.0", "anonymous_role": "read"}}, "only on loopback"),
        ({"http": {"tls_key_file": "key.pem"}}, "or neither"),
        ({"stores.main": {"kind": "s3"}}, "bucket"),
        ({"stores.Main": {"kind": "s3", "bucket": "b"}}, "stores"),
    ],
)
@pytest.mark.parametrize("command", ["node", "format", "config", "doctor"])
def test_a_wrong_setting_is_named_and_nothing_is_made(
    tmp_path: Path, command: str, changed: dict[str, dict[str, object]], words: str
) -> None:
    config = write_config(tmp_path / "node", **changed)
    done = invoke(command, "--config", config)
    assert done.exit_code == ExitCode.USAGE
    assert words in done.stderr
    assert not (tmp_path / "node" / "data").exists()


@pytest.mark.parametrize("command", ["node", "format", "config", "doctor"])
def test_an_unknown_variable_is_named_and_nothing_is_made(tmp_path: Path, command: str) -> None:
    config = write_config(tmp_path / "node")
    done = invoke(command, "--config", config, env={"STRANDLINE_COPIER__PARALEL_MAX": "8"})
    assert done.exit_code == ExitCode.USAGE
    assert "STRANDLINE_COPIER__PARALEL_MAX is not a setting" in done.stderr
    assert not (tmp_path / "node" / "data").exists()


def test_config_shows_values_with_their_origin(tmp_path: Path) -> None:
    config = write_config(tmp_path / "node")
    env = {"STRANDLINE_COPIER__PARALLEL_MAX": "8"}
    shown = invoke("config", "--config", config, env=env)
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "copier.parallel_max 8 environment STRANDLINE_COPIER__PARALLEL_MAX" in lines
    assert f'kafka.log_dirs ["{CAPTURED}"] {config}' in lines
    assert "worker.count 1 default" in lines
    values = json.loads(invoke("config", "--config", config, "--json", env=env).stdout)
    assert values["copier.parallel_max"] == {
        "value": 8,
        "origin": "environment STRANDLINE_COPIER__PARALLEL_MAX",
    }
    assert values["kafka.log_dirs"]["value"] == [str(CAPTURED)]


def refused_start(config: Path) -> tuple[int, str]:
    done = strandline("node", "--config", config)
    assert "Traceback" not in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    return done.returncode, line


def test_a_node_that_was_not_formatted_says_so_and_makes_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path / "node")
    code, line = refused_start(config)
    assert code == ExitCode.USAGE
    assert "run `strandline format`" in line
    assert not (tmp_path / "node" / "data").exists()


def test_a_node_refuses_a_prefix_of_another_cluster_and_leaves_it_alone(tmp_path: Path) -> None:
    marker = tmp_path / "node" / "tier" / "_strandline" / "cluster.json"
    config = write_config(tmp_path / "node")
    assert invoke("format", "--config", config).exit_code == 0
    marker.parent.mkdir()
    text = json.dumps({"version": 1, "clusterId": "AAAAAAAAQACAAAAAAAAAAQ", "kafkaClusterId": None})
    marker.write_text(text)
    code, line = refused_start(config)
    assert code == ExitCode.REFUSED
    assert "AAAAAAAAQACAAAAAAAAAAQ" in line
    assert "prefix" in line
    assert marker.read_text() == text
    assert {path for path in (tmp_path / "node" / "tier").rglob("*") if path.is_file()} == {marker}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cluster.id=", "belongs to the Kafka cluster x"),
        ("node.id=", "belongs to broker 91"),
    ],
)
def test_a_node_refuses_another_clusters_or_brokers_log_directory(
    tmp_path: Path, line: str, words: str
) -> None:
    config = write_config(tmp_path / "node")
    assert invoke("format", "--config", config).exit_code == 0
    other = tmp_path / "other"
    other.mkdir()
    properties = (CAPTURED / "meta.properties").read_text()
    strange = line + ("9" if line == "node.id=" else "x")
    (other / "meta.properties").write_text(properties.replace(line, strange))
    config.write_text(config.read_text().replace(str(CAPTURED), str(other)))
    code, error = refused_start(config)
    assert code == ExitCode.REFUSED
    assert words in error
    assert list((tmp_path / "node" / "tier").iterdir()) == []


def test_a_store_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    config = write_config(tmp_path / "node")
    assert invoke("format", "--config", config).exit_code == 0
    (tmp_path / "node" / "tier").rmdir()
    code, line = refused_start(config)
    assert code in (ExitCode.NOT_FOUND, ExitCode.USAGE)
    assert str(tmp_path / "node" / "tier") in line
    assert not (tmp_path / "node" / "tier").exists()


def test_a_port_in_use_is_named(tmp_path: Path, node: NodeProcess) -> None:
    config = write_config(tmp_path / "node")
    assert invoke("format", "--config", config).exit_code == 0
    port = node.url.rpartition(":")[2]
    text = config.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("port = "))
    config.write_text(text.replace(line, f"port = {port}"))
    code, error = refused_start(config)
    assert code == ExitCode.USAGE
    assert port in error


def test_nobody_may_ask_a_node_on_all_addresses_that_has_no_tokens(tmp_path: Path) -> None:
    http: dict[str, object] = {"host": "0.0.0.0", "anonymous_role": "none"}
    with NodeProcess(tmp_path / "node", sections(tmp_path / "tier") | {"http": http}) as process:
        assert httpx.get(f"{process.url}/v1/cluster").status_code == 401
        assert httpx.get(f"{process.url}/metrics").status_code == 401
        assert "all HTTP requests but health checks are refused" in process.log
        assert "unencrypted" in process.log


def test_the_environment_of_the_tests_leaks_no_setting() -> None:
    assert not [name for name in environment() if name.startswith("STRANDLINE_")]
