"""The support bundle: what is in it, what never is, and that trouble does not stop it."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

import pytest

from strandline.cli.exit_codes import ExitCode
from strandline.doctor.masking import MASK, Masker
from strandline.doctor.support_bundle import LOG_TAIL_BYTES_MAX
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS, invoke
from tests.strandline.conftest import sections

SECRET = "planted-5ecret"


def members(path: Path) -> dict[str, str]:
    """Name (below the bundle's folder) -> text."""
    found = {}
    with tarfile.open(path) as archive:
        for entry in archive.getmembers():
            assert entry.isfile()
            file = archive.extractfile(entry)
            assert file is not None
            folder, _, name = entry.name.partition("/")
            assert folder == path.name.removesuffix(".tar.gz")
            found[name] = file.read().decode()
    return found


def test_a_running_nodes_bundle_says_all_about_it(node: NodeProcess, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    done = invoke("support-bundle", "--config", node.config, "--output", path)
    assert done.exit_code == 0, done.output
    found = members(path)
    for name in found:
        assert name in done.stdout
        assert name == "README.txt" or name in found["README.txt"]
        assert "could not be read" not in found[name], found[name]
    totals = json.loads(found["node/cluster.json"])["totals"]
    assert totals["copy_segment_finished"] == CAPTURED_SEGMENTS
    assert any(each["topic"] == "orders" for each in json.loads(found["node/partitions.json"]))
    assert "strandline_remote_copy_segments_total" in found["node/metrics.txt"]
    assert json.loads(found["config.json"])["worker.count"]["value"] == 1
    assert all(each["ok"] is not None for each in json.loads(found["doctor.json"]))
    assert "python" in json.loads(found["versions.json"])
    assert "rocksdict " in found["packages.txt"]
    machine = json.loads(found["machine.json"])
    assert machine["processors"] >= 1
    assert {"file_system", "free_bytes"} == set(machine["directories"][str(CAPTURED)])
    orders = next(
        each for each in json.loads(found["node/topics.json"]) if each["topic"] == "orders"
    )
    assert orders["policy"]["copy_paused"] is False
    assert "log_start_moved" in {each["action"] for each in json.loads(found["node/audit.json"])}
    assert "RocksDB version" in found["data-directory/view-log.txt"]
    assert "leaderEpoch" in found["data-directory/quorum-state"]
    assert ".log" in found["data-directory/listing.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_planted_secret_is_in_a_bundle(tmp_path: Path) -> None:
    home = tmp_path / "node"
    planted: dict[str, str] = {}

    def plant(name: str) -> str:
        planted[name] = f"{SECRET}-{name}"
        return planted[name]

    def secret_file(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    credentials = secret_file(
        "credentials",
        f"[default]\naws_access_key_id = {plant('key-id')}\n"
        f"aws_secret_access_key = {plant('key')}\naws_session_token = {plant('session')}\n",
    )
    token = secret_file("token", plant("token"))
    settings = sections(home / "tier")
    settings["kafka"] |= {
        "sasl_username": "strandline",
        "sasl_password_file": secret_file("password", plant("sasl-password")),
        "ssl_key_file": secret_file("key.pem", f"-----BEGIN-----\n{plant('pem')}\n-----END-----\n"),
    }
    settings["stores.second"] = {
        "kind": "s3",
        "bucket": "tier",
        "credentials_file": credentials,
        "endpoint_url": f"http://someone:{plant('in-url')}@127.0.0.1:1",
    }
    process = NodeProcess(home, settings)
    process.write_config()
    env = {
        "AWS_SECRET_ACCESS_KEY": plant("environment"),
        "MY_DATABASE_PASSWORD": plant("unrelated"),
    }
    log = tmp_path / "node.log"
    log.write_text(
        "\n".join(f"a library logged {each}" for each in planted.values())
        + f"\nAuthorization: Bearer {plant('somebody-elses')}\n"
        f"password={plant('never-seen-before')}\nthe last line\n"
    )
    path = tmp_path / "bundle.tar.gz"
    done = invoke(
        "support-bundle", "--config", process.config, "--output", path,
        "--log-file", log, "--token-file", token,
        env=env,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert len(planted) == 11
    found = members(path)
    for name, text in found.items():
        assert SECRET not in text, (name, text[text.index(SECRET) - 60 :][:120])
    assert SECRET not in done.output
    assert "the last line" in found["log.txt"]
    assert MASK in found["log.txt"]
    assert "stores.second.endpoint_url" in found["config.json"]


def test_trouble_is_told_in_the_bundle_and_does_not_stop_it(tmp_path: Path) -> None:
    process = NodeProcess(tmp_path / "node", sections(tmp_path / "node" / "tier"))
    process.write_config()
    path = tmp_path / "bundle.tar.gz"
    done = invoke("support-bundle", "--config", process.config, "--output", path)
    assert done.exit_code == 0, done.output
    found = members(path)
    assert "is the node running" in found["node/cluster.json"]
    assert "could not be read" in found["data-directory/quorum-state"]
    assert "strandline format" in found["doctor.json"]


def test_settings_that_can_not_be_used_are_told_in_the_bundle(tmp_path: Path) -> None:
    config = tmp_path / "strandline.toml"
    config.write_text("[copier]\nintervall_s = 1\n")
    path = tmp_path / "bundle.tar.gz"
    assert invoke("support-bundle", "--config", config, "--output", path).exit_code == 0
    found = members(path)
    assert "copier.intervall_s" in found["config-error.txt"]
    assert "versions.json" in found


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tar.gz"
    path.write_text("years of work")
    done = invoke("support-bundle", "--output", path)
    assert done.exit_code == ExitCode.CONFLICT
    assert path.read_text() == "years of work"
    nowhere = invoke("support-bundle", "--output", tmp_path / "no" / "such" / "folder.tar.gz")
    assert nowhere.exit_code == ExitCode.USAGE


def test_of_a_long_log_only_whole_last_lines_are_taken(tmp_path: Path) -> None:
    log, path = tmp_path / "node.log", tmp_path / "bundle.tar.gz"
    lines = [f"line {number}" for number in range(LOG_TAIL_BYTES_MAX // 8)]
    log.write_text("\n".join(lines) + "\n")
    assert invoke("support-bundle", "--output", path, "--log-file", log).exit_code == 0
    kept = members(path)["log.txt"].splitlines()
    assert 0 < len(kept) < len(lines)
    assert kept == lines[-len(kept) :]


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://user:pw@host/bucket", "https://***@host/bucket"),
        ("secret_access_key = abcdef", "secret_access_key = ***"),
        ('"token": "abc.def"', '"token": "***"'),
        ("authorization: Bearer abc", "authorization: Bearer ***"),
        ("strandline.s3.secret.key=abcdef", "strandline.s3.secret.key=***"),
        ("-o strandline.s3.access.key=abcdef", "-o strandline.s3.access.key=***"),
        ("secret-access-key: abcdef", "secret-access-key: ***"),
        ("strandline.token.file=/etc/token", "strandline.token.file=/etc/token"),
        ("http://u:p@ss@host", "http://***@host"),
        (
            '"sasl_password_file": {"value": "/etc/password"}',
            '"sasl_password_file": {"value": "/etc/password"}',
        ),
        ("known-one and known-one-too", "*** and ***"),
        (json.dumps({"it": 'with "quotes"'}), '{"it": "***"}'),
        ("GET /?it=with%20%22quotes%22", "GET /?it=***"),
        ("nothing to hide: token 17 of claim", "nothing to hide: token 17 of claim"),
    ],
)
def test_what_looks_like_a_secret_is_masked_and_plain_text_is_not(text: str, masked: str) -> None:
    assert Masker(["known-one", "known-one-too", "abc", 'with "quotes"']).mask(text) == masked
