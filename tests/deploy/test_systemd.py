"""deploy/systemd: valid for systemd, and its settings and paths are the node's and the image's."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rlm.local_log.hold_beside import sibling
from strandline.cli.exit_codes import ExitCode
from strandline.doctor.private_files import private_files
from strandline.settings.loading import load_settings
from tests.deploy.container import image_environment
from tests.real.toolbox import REPOSITORY, require_program

FOLDER = REPOSITORY / "deploy" / "systemd"
UNIT = FOLDER / "strandline.service"
CREDENTIALS = "/run/credentials/strandline.service"  # what %d stands for
DEADLINE_S = 60
EXPOSURE_MAX = 20
"""Of 100, as `systemd-analyze security` counts; a program that uses the network can't have 0."""


def values(key: str) -> list[str]:
    """Of each line `key=value`, in order."""
    return re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.M)


def credentials() -> dict[str, Path]:
    """Name -> the file that systemd copies it from."""
    pairs = (value.split(":", 1) for value in values("LoadCredential"))
    return {name: Path(path) for name, path in pairs}


def environment() -> dict[str, str]:
    pairs = (value.split("=", 1) for value in values("Environment"))
    return {name: value.replace("%d", CREDENTIALS) for name, value in pairs}


def test_the_node_knows_each_setting_and_reads_its_own_copies_of_secrets() -> None:
    settings = load_settings(FOLDER / "strandline.toml", environment()).settings
    copies = {f"{CREDENTIALS}/{name}" for name in credentials()}
    assert settings.http.tokens_file is not None
    read = {str(path) for path in [*private_files(settings).values(), settings.http.tokens_file]}
    assert read == copies

    by_root = load_settings(FOLDER / "strandline.toml", {}).settings
    assert by_root.http.tokens_file == credentials()["tokens"]
    assert by_root.stores["main"].credentials_file == credentials()["credentials"]
    assert set(environment()) <= {
        "STRANDLINE_CONFIG",
        "STRANDLINE_STORES__MAIN__CREDENTIALS_FILE",
        "STRANDLINE_HTTP__TOKENS_FILE",
    }, "no secret, and nothing that the settings file could say"


def test_the_program_and_its_files_are_where_the_image_has_them() -> None:
    (command,) = values("ExecStart")
    program, *arguments = shlex.split(command)
    image = image_environment()
    assert str(Path(program).parent) == image["PATH"].split(":")[0]
    assert arguments == ["node"]
    assert environment()["STRANDLINE_CONFIG"] == image["STRANDLINE_CONFIG"]
    settings = load_settings(FOLDER / "strandline.toml", {}).settings
    (state,) = values("StateDirectory")
    assert Path("/var/lib", state) in settings.node.data_dir.parents
    (user,) = values("User")
    assert re.search(rf"^u {user} ", (FOLDER / "strandline.sysusers").read_text(), re.M)


def test_the_node_may_link_beside_each_log_directory() -> None:
    """A writable path is a mount of its own, and no link crosses two: it has to have both."""
    writable = [Path(value.removeprefix("-")) for value in values("ReadWritePaths")]
    guide = (REPOSITORY / "deploy" / "README.md").read_text()
    for log_dir in load_settings(FOLDER / "strandline.toml", {}).settings.kafka.log_dirs:
        beside = sibling(log_dir)
        assert any(each in log_dir.parents and each in beside.parents for each in writable)
        assert re.search(rf"^install -d -m 0700 -o strandline .*{beside} ", guide, re.M)
    assert values("AmbientCapabilities") == values("CapabilityBoundingSet") == ["CAP_FOWNER"]


def test_a_node_is_started_again_whatever_ended_it_but_a_wrong_setting() -> None:
    assert values("Restart") == ["always"], "`on-failure` takes an end by SIGPIPE for a clean one"
    assert values("RestartPreventExitStatus") == [str(int(ExitCode.USAGE))]


@pytest.mark.integration
def test_systemd_takes_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    analyze = require_program("systemd-analyze")
    installed = Path(sys.executable).parent / "strandline"
    copy = tmp_path / UNIT.name
    shutil.copy(UNIT, copy)
    copy.write_text(copy.read_text().replace("/opt/strandline/bin/strandline", str(installed)))

    def said(*arguments: object) -> str:
        done = subprocess.run(
            [analyze, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr

    assert said("verify", "--man=no", copy) == ""
    said("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", copy)
