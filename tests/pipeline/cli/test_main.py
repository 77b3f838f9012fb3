"""The jobs' command line: its table, its help, what the settings of a node hand over."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from kafka_formats.errors import InvalidRequest
from pipeline.catalogue.store_options import store_configs
from pipeline.cli.main import COMMANDS, app
from pipeline.cli.options import (
    ENVIRONMENT_OPTIONS,
    check_names,
    key_values,
    tier_options,
    typed_key_values,
)
from pipeline.cli.running import Job
from strandline.cli import pipeline_command
from strandline.cli.exit_codes import ExitCode
from strandline.cli.pipeline_command import options_of_settings
from strandline.settings.loading import load_settings
from strandline.settings.store_configs import store_configs as stores_of_settings

SETTINGS = """
[stores.main]
kind = "s3"
bucket = "tier"
prefix = "a b/c-"
endpoint_url = "http://127.0.0.1:9000"
region = "eu-west-1"
addressing_style = "path"
credentials_file = "{credentials}"

[stores.old-disk]
kind = "filesystem"
path = "{folder}"
prefix = "x/"
"""
COMPARED = (
    "kind", "bucket", "prefix", "endpoint_url", "region", "path", "access_key_id",
    "secret_access_key", "session_token", "addressing_style",
)  # fmt: skip


class Damaged:
    """A job's report."""

    ok = False

    def as_json(self) -> dict[str, object]:
        return {"ok": self.ok}

    def lines(self) -> list[str]:
        return ["3 segments are damaged"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_job_says_with_an_example(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    text = inspect.getdoc(getattr(import_module(f"pipeline.cli.{module}"), attribute)) or ""
    assert text.splitlines()[0] == COMMANDS[name][1]
    assert re.search(rf"^Example: `strandline pipeline {name}\b", text, re.MULTILINE)


def test_the_stores_of_the_settings_are_the_jobs(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text(
        "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = a+/=b&c\n"
    )
    config = tmp_path / "strandline.toml"
    config.write_text(SETTINGS.format(credentials=credentials, folder=tmp_path))
    wanted = stores_of_settings(load_settings(config, {}).settings)
    found = store_configs(options_of_settings(config), {})
    assert found.keys() == wanted.keys()
    for name, store in wanted.items():
        assert [getattr(found[name], each) for each in COMPARED] == [
            getattr(store, each) for each in COMPARED
        ]


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_OPTIONS, '{"strandline.store": "s3://a", "x": "1"}')
    found = tier_options(["x=2=3"], "file:///tier", None, None)
    assert found == {"strandline.store": "file:///tier", "x": "2=3"}


@pytest.mark.parametrize(
    "name",
    [
        "strandline.s3endpoint", "strandline.stor", "strandline.aiven.key", "fooo",
        "strandline.tokenfile", "strandline.target.endpoint", "strandline.target.s3.endpiont",
        "subscribe", "maxBatchBytes",
    ],
)  # fmt: skip
def test_an_option_that_a_job_does_not_know_is_refused_by_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(InvalidRequest, match=f"{name}: is not an option of the job export"),
        Job({"strandline.store": "file:///tier", name: "1"}).context("export"),
    ):
        pass
    monkeypatch.setenv(ENVIRONMENT_OPTIONS, json.dumps({name: "1"}))
    with pytest.raises(InvalidRequest, match=name):
        check_names(tier_options(None, "file:///tier", None, None), job="export")


def test_options_that_a_job_knows_pass_whatever_their_case() -> None:
    known = {
        "Strandline.Store": "file:///tier",
        "strandline.store.old.s3.endpoint": "x",
        "strandline.token.file": "x",
        "strandline.aiven.keys": "x",
        "strandline.target.s3.Endpoint": "x",
    }
    check_names(known, job="scrub")
    check_names(known | {"maxBatchBytes": "1"}, job="restore")


def test_an_option_typed_twice_is_refused() -> None:
    twice = ["strandline.s3.region=a", "strandline.S3.region=b"]
    with pytest.raises(InvalidRequest, match=r"strandline\.s3\.region: is given twice"):
        tier_options(twice, None, None, None)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1}'])
def test_an_environment_that_is_no_set_of_options_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_OPTIONS, text)
    with pytest.raises(InvalidRequest, match=ENVIRONMENT_OPTIONS):
        tier_options(None, None, None, None)


def test_a_malformed_option_shows_no_value() -> None:
    with pytest.raises(InvalidRequest, match=r"--conf: '' must look like key=value"):
        key_values(["=secret"], option="--conf")


SECRETS = (
    ("--option", "strandline.s3.secret.key=hunter2"),
    ("--option", "strandline.store.old.s3.session.token=hunter2"),
    ("--option", "Strandline.Target.S3.Secret.Key=hunter2"),
    ("--conf", "spark.executorEnv.AWS_SECRET_ACCESS_KEY=hunter2"),
    ("--conf", "spark.hadoop.fs.s3a.secret.key=hunter2"),
    ("--conf", "spark.ssl.keyPassword=hunter2"),
    ("--kafka-config", "sasl.password=hunter2"),
    ("--kafka-config", "ssl.key.pem=hunter2"),
    ("--producer-config", "sasl.oauthbearer.client.secret=hunter2"),
    ("--catalog-property", "s3.secret-access-key=hunter2"),
    ("--catalog-property", "credential=me:hunter2"),
    ("--catalog-property", "uri=postgresql+psycopg2://me:hunter2@db/catalog"),
)
NO_SECRETS = (
    ("--option", "strandline.token.file=/etc/strandline/token"),
    ("--option", "strandline.s3.access.key=AKIDEXAMPLE"),
    ("--conf", "spark.executorEnv.AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/token"),
    ("--conf", "spark.kubernetes.executor.secrets.tls=/etc/tls"),
    ("--conf", "spark.kubernetes.executor.secretKeyRef.PASSWORD_OF=keys:name"),
    ("--conf", "spark.hadoop.fs.s3a.aws.credentials.provider=org.example.Provider"),
    ("--catalog-property", "uri=http://127.0.0.1:8181"),
)


@pytest.mark.parametrize(("option", "text"), SECRETS)
def test_a_secret_on_the_command_line_is_refused_by_name_with_where_else_it_may_stand(
    option: str, text: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{option}: .* can read it") as caught:
        typed_key_values(["a=b", text], option=option)
    assert text.partition("=")[0] in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("option", "text"), NO_SECRETS)
def test_what_only_sounds_like_a_secret_is_taken(option: str, text: str) -> None:
    assert typed_key_values([text], option=option) == dict([text.split("=", 1)])


TYPED = {
    "export": ("--topic", "orders", "--to", "/data/orders"),
    "rebuild": ("--output", "."),
    "restore": ("orders", "--bootstrap", "127.0.0.1:1"),
}


@pytest.mark.parametrize("option", ["--option", "--conf"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_job_refuses_a_secret_before_it_starts_anything(
    name: str, option: str, tmp_path: Path
) -> None:
    typed = [name, *TYPED.get(name, ()), "--store", tmp_path.as_uri()]
    if name == "reconcile":
        typed += ["--snapshot", str(tmp_path / "snapshot")]
    with mock.patch("pipeline.cli.running.open_session", side_effect=AssertionError):
        done = CliRunner().invoke(app, [*typed, option, "spark.secret=hunter2"])
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == ExitCode.USAGE
    assert f"{option}: spark.secret holds a secret" in " ".join(done.stderr.split())
    assert "hunter2" not in done.output


def test_a_registrys_password_is_refused_in_its_address() -> None:
    registry = ("--registry", "https://me:hunter2@registry", "--value-format", "avro")
    done = CliRunner().invoke(app, ["export", *TYPED["export"], *registry])
    assert "STRANDLINE_REGISTRY_USER" in done.stderr
    assert "hunter2" not in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("export", "--topic-pattern", "(", "--to", "/t"), "--topic-pattern: '(' is not a regular"),
        (
            ("export", "--topic=t", "--to=/t", "--first-offset=9", "--last-offset=3"),
            "--last-offset: 3 is below --first-offset (9)",
        ),
        (("restore", "t", "--bootstrap=b:1", "--kafka-config-file={binary}"), "can't be read"),
        (
            ("restore", "t", "--bootstrap=b:1", "--topic-config", "retention.ms=1"),
            "--topic-config: retention.ms has to be -1 until the restore has ended",
        ),
        (
            ("restore", "t", "--bootstrap=b:1", "--topic-id=AAAAAAAAAAAAAAAAAAAAAQ"),
            "--topic-id: only with --into-log-dirs: leave it out",
        ),
        *(
            (
                ("restore", "t", "--into-log-dirs=/d", *option),
                f"{option[0]}: only with --bootstrap: leave it out",
            )
            for option in (
                ("--skip-lost",),
                ("--no-compare",),
                ("--mapping", "/m.csv"),
                ("--kafka-config", "a=b"),
                ("--kafka-config-file", "/f"),
                ("--producer-config", "a=b"),
                ("--topic-config", "a=b"),
            )
        ),
    ],
)
def test_what_can_not_be_meant_is_refused_by_its_option(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff=1\n")
    given = [each.format(binary=tmp_path / "binary") for each in arguments]
    done = CliRunner().invoke(app, [*given, f"--store=file://{tmp_path}"])
    assert done.exit_code == ExitCode.USAGE
    assert says in " ".join(done.stderr.split())


def test_a_report_that_can_not_be_written_is_printed_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Damaged()
    for place in (tmp_path / "none" / "report.json", tmp_path, tmp_path / ".."):
        with pytest.raises(InvalidRequest, match="--report"):
            Job({}, report_file=place).finish(report)
        assert "3 segments are damaged" in capsys.readouterr().out
    assert not list(tmp_path.parent.glob(".*unfinished"))


def test_the_commands_environment_and_files_take_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENVIRONMENT_OPTIONS, '{"strandline.s3.secret.key": "hunter2"}')
    assert tier_options(None, None, None, None) == {"strandline.s3.secret.key": "hunter2"}
    assert key_values(["sasl.password=hunter2"], option="--kafka-config-file")


def test_both_sides_name_the_same_variable() -> None:
    assert pipeline_command.ENVIRONMENT_OPTIONS == ENVIRONMENT_OPTIONS


def test_the_nodes_command_starts_the_jobs_process() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "strandline", "pipeline"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "strandline pipeline" in shown.stdout
    for name in COMMANDS:
        assert name in shown.stdout
