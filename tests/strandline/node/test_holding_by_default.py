"""Nodes beside a broker that is away, whose settings do not say where to hold."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlm.local_log.hold_beside import DIRECTORY_NAME
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess, Sections
from tests.real.ports import free_ports
from tests.rlm.kafka_logs import KAFKA_CLUSTER, KafkaLog, new_log_dir

DEADLINE_S = 60
MOUNTS = {
    "another disk": 'cp -a "$0" "$0.copy"; mount -t tmpfs tmpfs "$0"; cp -a "$0.copy/." "$0"',
    "a mount of the same disk": 'mount --bind "$0" "$0"',
}


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Sealed segments 0-9 and 10-19, and an active one."""
    (tmp_path / "disk").mkdir()
    log = KafkaLog.create(new_log_dir(tmp_path / "disk" / "data"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


class MountingNode(NodeProcess):
    """A node that sees a log directory as a mount of its own, made by a shell command."""

    mount = ""
    on = Path()

    def _command(self, name: str) -> list[str]:
        script = f'set -e; {self.mount}; exec "$@"'
        shell = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(self.on)]
        return [*shell, *super()._command(name)]


def node_beside(
    home: Path,
    *log_dirs: Path,
    kind: type[NodeProcess] = NodeProcess,
    sections: Sections | None = None,
) -> NodeProcess:
    """Not started yet; its broker does not answer, so that nothing is copied."""
    (home / "tier").mkdir(parents=True)
    settings: dict[str, dict[str, object]] = {
        "kafka": {
            "log_dirs": [str(each) for each in log_dirs],
            "broker": f"127.0.0.1:{free_ports(1)[0]}",
        },
        "topics": {"include": ["*"]},
        "stores.main": {"kind": "filesystem", "path": str(home / "tier")},
        "copier": {"interval_s": 0.2},
        "hold": {"free_bytes_min": 1},
    }
    merged = {
        name: {**settings.get(name, {}), **values} for name, values in (sections or {}).items()
    }
    return kind(home, settings | merged, typed=kind is MountingNode)


@contextmanager
def running(node: NodeProcess, *how: str) -> Iterator[NodeProcess]:
    """Formatted, and started; it answers."""
    node.format(*how)
    try:
        started(node)
        yield node
    finally:
        node.kill()


def started(node: NodeProcess) -> None:
    node.spawn()
    node.wait_until(lambda: node.readiness()[0] != 0, "an answer", deadline_s=DEADLINE_S)


def figures(node: NodeProcess) -> list[str]:
    return PLAIN.get(f"{node.url}/metrics").text.splitlines()


def hold_problems(node: NodeProcess) -> list[str]:
    """As `strandline status` shows them."""
    found = PLAIN.get(f"{node.url}/v1/cluster").json()["problems"]
    return [each["text"] for each in found if each["about"] == "hold"]


def held(folder: Path) -> list[str]:
    """The files in hold directories below `folder`, but for what is put together."""
    return sorted(
        path.name
        for path in folder.glob(f"**/{DIRECTORY_NAME}/**/*.log")
        if path.stat().st_size and ".making-" not in str(path)
    )


def names(*bases: int) -> list[str]:
    return [f"{base:020d}.log" for base in bases]


def test_beside_a_broker_a_node_holds_what_is_sealed_and_what_is_active(
    tmp_path: Path, orders: KafkaLog
) -> None:
    hold = orders.log_dir.parent / DIRECTORY_NAME
    with running(node_beside(tmp_path / "node", orders.log_dir)) as node:
        node.wait_until(lambda: held(tmp_path) == names(0, 10, 20), "links", deadline_s=DEADLINE_S)
        assert hold_problems(node) == []
        assert hold.stat().st_mode & 0o777 == 0o700
        assert (hold / f"{KAFKA_CLUSTER}-1").is_dir()
        orders.delete_segment(0)
        node.kill()
        started(node)
        assert held(tmp_path) == names(0, 10, 20)


@pytest.mark.parametrize(
    "sections",
    [{"hold": {"dirs": []}}, {"kafka": {"broker": ""}}, {"kafka": {"log_dirs": []}}],
    ids=["told so", "without a broker", "without log directories"],
)
def test_a_node_holds_nothing_where_it_is_told_so_or_no_broker_deletes(
    tmp_path: Path, orders: KafkaLog, sections: Sections
) -> None:
    node = node_beside(tmp_path / "node", orders.log_dir, sections=sections)
    identity = ("--kafka-cluster-id", KAFKA_CLUSTER, "--node-id", "1")
    with running(node, *(identity if sections.get("kafka") == {"log_dirs": []} else ())):
        assert hold_problems(node) == []
    assert [each.name for each in orders.log_dir.parent.iterdir()] == ["data"]


@pytest.mark.parametrize("mount", MOUNTS)
def test_where_the_log_directory_is_a_mount_point_the_node_runs_and_says_so(
    tmp_path: Path, orders: KafkaLog, mount: str
) -> None:
    can = subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True)
    if can.returncode != 0:
        pytest.skip("no mount namespaces for this user")
    other = KafkaLog.create(new_log_dir(tmp_path / "data2"), "logs", entries=((0, 0),))
    other.write(0, 5, end=7)
    node = node_beside(tmp_path / "node", orders.log_dir, other.log_dir, kind=MountingNode)
    assert isinstance(node, MountingNode)
    node.mount, node.on = MOUNTS[mount], orders.log_dir
    with running(node):
        node.wait_until(lambda: held(tmp_path) == names(0, 5), "links", deadline_s=DEADLINE_S)
        (text,) = hold_problems(node)
        assert text.startswith(f"no segment of {orders.log_dir} is held")
        assert "mount the broker's disk one directory higher" in text
        assert "set hold.dirs = []" in text
        assert 'strandline_node_problems{area="hold"} 1.0' in figures(node)
        assert node.log.count(f"no segment of {orders.log_dir} is held") == 1


def test_a_directory_that_cannot_be_made_keeps_no_node_from_starting(
    tmp_path: Path, orders: KafkaLog
) -> None:
    (orders.log_dir.parent / DIRECTORY_NAME).write_text("taken")
    with running(node_beside(tmp_path / "node", orders.log_dir)) as node:
        (text,) = hold_problems(node)
        assert "cannot be made or written to" in text


def test_a_named_directory_that_cannot_be_used_keeps_the_node_from_starting(
    tmp_path: Path, orders: KafkaLog
) -> None:
    node = node_beside(
        tmp_path / "node", orders.log_dir, sections={"hold": {"dirs": [str(tmp_path / "missing")]}}
    )
    with pytest.raises(RuntimeError, match="cannot be read"), running(node):
        pass


def test_what_is_held_of_a_log_directory_that_is_away_is_known(
    tmp_path: Path, orders: KafkaLog
) -> None:
    node = node_beside(tmp_path / "node", orders.log_dir)
    with running(node):
        node.wait_until(lambda: held(tmp_path) == names(0, 10, 20), "links", deadline_s=DEADLINE_S)
        orders.log_dir.rename(tmp_path / "data-away")
        node.kill()
        started(node)
        assert "strandline_hold_segments 2.0" in figures(node)
        assert held(tmp_path) == names(0, 10, 20)
