"""`strandline limits` against a real node, and the limits that its settings begin with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_formats.errors import InvalidRequest
from rlm.quota.flow_limits import MIB, FlowLimits, Rates
from strandline.cli.exit_codes import ExitCode
from strandline.node.surroundings import flow_control
from strandline.settings.settings import LimitSettings, Settings
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import invoke


@pytest.fixture
def limits(changed_node: NodeProcess) -> Iterator[Any]:
    def run(*arguments: str, code: ExitCode = ExitCode.OK) -> Any:
        done = invoke("limits", *arguments, env={"STRANDLINE_URL": changed_node.url})
        assert done.exit_code == code, done.stderr
        return done.stdout if code is ExitCode.OK else done.stderr

    yield run
    run("set", "--copy", "unlimited", "--read", "unlimited")


def test_what_is_named_changes_and_the_rest_stays(limits: Any) -> None:
    limits("set", "--copy", "50MiB")
    limits("set", "--read", "3MiB", "--topic", "logs", "--ahead")
    shown = json.loads(limits("show", "--json"))
    assert shown["copy_bytes_per_s"] == 50 * MIB
    assert shown["read_bytes_per_s"] is None
    assert shown["topics"] == {"logs": {"copy_bytes_per_s": None, "read_bytes_per_s": 3 * MIB}}
    lines = [" ".join(line.split()) for line in limits("show").splitlines()]
    assert lines[1:] == ["node 1 50MiB/s unlimited", "topic logs unlimited 3MiB/s"]
    limits("set", "--read", "unlimited", "--topic", "logs")
    assert json.loads(limits("show", "--json"))["topics"] == {}


def test_what_cannot_be_held_is_refused(limits: Any) -> None:
    assert "give --copy or --read" in limits("set", code=ExitCode.USAGE)
    assert "50GB" in limits("set", "--copy", "50GB", code=ExitCode.USAGE)
    assert "too few" in limits("set", "--copy", "5KiB", code=ExitCode.USAGE)


def test_a_node_begins_with_the_limits_of_its_settings() -> None:
    assert flow_control(Settings()).limits == FlowLimits()
    settings = LimitSettings(
        copy_bytes_per_s=9 * MIB,
        topic_copy_bytes_per_s={"logs": 2 * MIB, "all": 0},
        topic_read_bytes_per_s={"logs": 3 * MIB},
    )
    assert flow_control(Settings(limits=settings)).limits == FlowLimits(
        Rates(9 * MIB, None), {"logs": Rates(2 * MIB, 3 * MIB), "all": Rates()}
    )
    with pytest.raises(InvalidRequest, match="too few"):
        flow_control(Settings(limits=LimitSettings(copy_bytes_per_s=5)))
