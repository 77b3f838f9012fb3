"""Three stock brokers on Kafka's own managers move into the metadata log with 2,000 segments, are
restarted there, go back to Kafka's own class and move again, while producers and consumers run all
the time and the node that carries a switch out is killed: no record is lost, and no scan of a
consumer misses one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.broker_site import SEGMENT_BYTES, Site, open_site
from tests.e2e.faults import all_in_sync
from tests.e2e.http import PLAIN
from tests.e2e.ledger import LogKey
from tests.e2e.migrating_broker import of_bridge, of_kafka
from tests.e2e.scanning_reader import ScanningReader
from tests.e2e.tiering_broker import TOPIC
from tests.real.kafka_clients import NewRecord, produce
from tests.real.kafka_cluster import BROKERS
from tests.real.process_tree import stopped
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(2_400)]

SEED = 1
TIERED_S = 180.0
HISTORY = "history"
HISTORY_SEGMENTS = 2_000
HISTORY_S = 600.0
PRODUCED_AT_ONCE = 60
PHASE_S = 180.0
PAUSE_S = 30.0


@contextmanager
def three_brokers(tmp_path: Path) -> Iterator[tuple[Site, dict[int, dict[str, str]]]]:
    """On Kafka's own managers, with a topic; and each one's lines with the bridge."""
    tier = tmp_path / "kafkas"
    tier.mkdir()
    kafkas = of_kafka(tier, replicas=3)
    with open_site(tmp_path, SEED, tiering=lambda _: kafkas) as site:
        site.make_topic(TOPIC, len(BROKERS))
        yield (
            site,
            {number: of_bridge(site.quorum.nodes[number].url) for number in site.cluster.brokers},
        )


def start(site: Site, bridges: Mapping[int, Mapping[str, str]]) -> None:
    """The move begins, and each broker gets the bridge."""
    wait_until_tiered(site)
    site.quorum.operate("finalize", 2)
    migrate(site, "start", "--why", "a test")
    roll(site, bridges)


def phase(site: Site) -> str:
    """As any node has it that answers."""
    node = next(iter(site.quorum.running.values()))
    return str(PLAIN.get(f"{node.url}/v1/migration").json()["phase"])


def migrate(
    site: Site, *arguments: object, code: ExitCode = ExitCode.OK, without: int | None = None
) -> None:
    """Asked at any node but the one `without`, whose broker is down: it can't ask that."""
    nodes = (node for each, node in site.quorum.running.items() if each != without)
    urls = ",".join(node.url for node in nodes)
    said = invoke("migrate", *arguments, "--url", urls)
    assert said.exit_code == code, said.stdout + said.stderr


def wait_until_tiered(site: Site) -> None:
    """Every leader has let go of all that its log has by now: it is in the tier alone."""

    def logs() -> dict[LogKey, list[Path]]:
        """The leaders' `.log` files, of partitions that have a leader."""
        found = {}
        for key in site.logs():
            leader = site.cluster.leader(key.topic, key.partition)
            if leader in site.cluster.brokers:
                found[key] = site.cluster.brokers[leader].segment_files(key.topic, key.partition)
        return {key: paths for key, paths in found.items() if paths}

    ends: dict[LogKey, int] = {}

    def all_led() -> bool:
        ends.update((key, int(paths[-1].stem)) for key, paths in logs().items())
        return len(ends) == len(site.logs())

    site.quorum.wait_until(all_led, "each partition to have a leader")

    def let_go() -> bool:
        starts = {key: int(paths[0].stem) for key, paths in logs().items()}
        return all(starts.get(key, -1) > end for key, end in ends.items())

    site.quorum.wait_until(let_go, "all of it to be in the tier alone", deadline_s=TIERED_S)


def fill_history(site: Site, tier: Path) -> None:
    """As many segments as a move is to take in half a minute, each of one record, in Kafka's own
    storage.
    """
    site.cluster.create_topic(HISTORY, partitions=len(BROKERS), config=site.topic_config)
    record = NewRecord(bytes(SEGMENT_BYTES * 2 // 3))  # two of them don't fit into one
    for partition in range(len(BROKERS)):
        for _ in range(HISTORY_SEGMENTS // len(BROKERS) // PRODUCED_AT_ONCE + 1):
            alone = {"batch.num.messages": 1}
            few = [record] * PRODUCED_AT_ONCE
            produce(site.cluster.bootstrap, HISTORY, partition, few, config=alone)

    def tiered() -> int:
        return sum(1 for path in tier.rglob("*.log") if path.parent.name.startswith(HISTORY))

    site.quorum.wait_until(
        lambda: tiered() >= HISTORY_SEGMENTS, "the history to be tiered", deadline_s=HISTORY_S
    )


def history_of_nodes(site: Site) -> int:
    """Segments of the history that the metadata log has."""
    url = next(iter(site.quorum.running.values())).url
    found = 0
    for partition in range(len(BROKERS)):
        of = PLAIN.get(f"{url}/v1/topics/{HISTORY}/partitions/{partition}").json()
        found += of["remote_segments"]
    return found


def roll(site: Site, settings: Mapping[int, Mapping[str, str]]) -> None:
    """Each broker gets its settings, one after the other."""
    for number, broker in site.cluster.brokers.items():
        broker.restart(overrides=settings[number])
        all_in_sync(site)
    site.lead_by_turns()


def wait_until_nothing_is_in_the_way(site: Site, *, to: str = "switch") -> None:
    url = next(iter(site.quorum.running.values())).url
    site.quorum.wait_until(
        lambda: invoke("migrate", to, "--dry-run", "--url", url).exit_code == ExitCode.OK,
        f"nothing to be in the way of {to}",
    )


def switch_with_a_killed_leader(site: Site) -> float:
    """Seconds from the beginning of the switch to its end, whoever carried it out."""
    leader = site.quorum.leader()
    begun = time.monotonic()
    body = {"phase": "switching", "why": "a test", "dry_run": False}
    answer = PLAIN.put(f"{site.quorum.nodes[leader].url}/v1/migration", json=body)
    assert answer.status_code == 200, answer.text
    time.sleep(5)  # in the middle of it
    site.tell(f"node {leader}, which carries the switch out, is killed")
    site.quorum.nodes[leader].kill()
    site.quorum.start(leader)
    site.quorum.wait_until(
        lambda: phase(site) != "switching", "the switch to end", deadline_s=PHASE_S
    )
    return time.monotonic() - begun


def change_while_the_carriers_broker_hangs(site: Site, to: str, after_s: float) -> float:
    """Seconds until the phase `to` ended. The broker beside the node that leads the quorum then
    stands still from `after_s` on, until the end.
    """
    leader = site.quorum.leader()
    begun = time.monotonic()
    body = {"phase": to, "why": "a test", "dry_run": False}
    answer = PLAIN.put(f"{site.quorum.nodes[leader].url}/v1/migration", json=body)
    assert answer.status_code == 200, answer.text
    time.sleep(after_s)
    site.tell(f"the broker beside node {leader}, which carries {to} out, is stopped")
    with stopped(site.cluster.brokers[leader].pid):
        site.quorum.wait_until(lambda: phase(site) != to, f"the end of {to}", deadline_s=PHASE_S)
        took = time.monotonic() - begun
        said = PLAIN.get(f"{site.quorum.nodes[leader].url}/v1/migration").json()
        site.tell(f"{to} took {took:.1f} s: {said['phase']}, {said['why']}")
        assert site.quorum.leader() != leader
    all_in_sync(site)
    return took


def test_a_broker_that_hangs_beside_the_carrying_node_costs_less_than_half_a_minute(
    tmp_path: Path,
) -> None:
    with three_brokers(tmp_path) as (site, bridges):
        with site.writer:
            start(site, bridges)
            # Behind its acknowledgement, before it, and in the middle of a way back.
            for to, after_s, reached in (
                ("switching", 5.0, "quorum"),
                ("back", 0.0, "kafka"),
                ("switching", 0.0, "quorum"),
                ("back", 5.0, "kafka"),
            ):
                wait_until_tiered(site)
                wait_until_nothing_is_in_the_way(site, to="switch" if to == "switching" else to)
                took = change_while_the_carriers_broker_hangs(site, to, after_s)
                assert phase(site) == reached
                assert took < PAUSE_S
            wait_until_tiered(site)
        with ScanningReader(site.cluster.bootstrap, site.ledger, site.logs, SEED) as last:
            last.do_round()


def nobody_else_writes(site: Site) -> None:
    """By the node that keeps the topic up."""
    url = site.quorum.nodes[site.quorum.leader()].url
    assert "strandline_shadow_foreign 0.0" in PLAIN.get(f"{url}/metrics").text.splitlines()


def test_brokers_that_were_down_or_are_killed_go_on_where_the_truth_is_by_then(
    tmp_path: Path,
) -> None:
    """One is down while the truth moves, forth and back; behind the switch each is killed once. A
    broker that began by what it knew before would copy past the metadata log, which is an alarm.
    """
    with three_brokers(tmp_path) as (site, bridges):

        def changed_without_one(*to: object) -> None:
            away = next(number for number in BROKERS if number != site.quorum.leader())
            wait_until_nothing_is_in_the_way(site, to=str(to[0]))
            site.tell(f"broker {away} is killed, then {to}")
            site.cluster.brokers[away].kill()
            migrate(site, *to, without=away)
            site.cluster.brokers[away].start()
            all_in_sync(site)
            site.lead_by_turns()
            wait_until_tiered(site)

        with site.writer:
            start(site, bridges)
            changed_without_one("switch")
            assert phase(site) == "quorum"
            for broker in site.cluster.brokers.values():
                broker.kill()
                broker.start()
                all_in_sync(site)
            site.lead_by_turns()
            wait_until_tiered(site)
            nobody_else_writes(site)
            changed_without_one("back")
            assert phase(site) == "kafka"
        with ScanningReader(site.cluster.bootstrap, site.ledger, site.logs, SEED) as last:
            last.do_round()


def test_three_brokers_move_go_back_and_move_again(tmp_path: Path) -> None:
    tier = tmp_path / "kafkas"
    with three_brokers(tmp_path) as (site, bridges):
        fill_history(site, tier)
        with (
            site.writer,
            ScanningReader(
                site.cluster.bootstrap, site.ledger, site.logs, SEED, pause_s=1
            ) as reader,
        ):
            start(site, bridges)
            wait_until_tiered(site)
            wait_until_nothing_is_in_the_way(site)
            took = switch_with_a_killed_leader(site)
            site.tell(f"the switch took {took:.1f} s with the killed node: {phase(site)}")
            if phase(site) == "kafka":
                wait_until_nothing_is_in_the_way(site)
                migrate(site, "switch")
            assert history_of_nodes(site) >= HISTORY_SEGMENTS
            wait_until_tiered(site)
            roll(site, bridges)
            wait_until_nothing_is_in_the_way(site, to="back")
            begun = time.monotonic()
            migrate(site, "back")
            took = time.monotonic() - begun
            site.tell(f"the way back took {took:.1f} s")
            assert took < PAUSE_S
            wait_until_tiered(site)
            roll(site, dict.fromkeys(site.cluster.brokers, of_kafka(tier, replicas=3)))
            wait_until_tiered(site)
            roll(site, bridges)
            wait_until_nothing_is_in_the_way(site)
            begun = time.monotonic()
            migrate(site, "switch")
            took = time.monotonic() - begun
            site.tell(f"the switch took {took:.1f} s, {history_of_nodes(site)} segments")
            assert took < PAUSE_S
            wait_until_tiered(site)
            migrate(site, "finish", "--yes")
            wait_until_tiered(site)
        assert reader.scans > 0
        with ScanningReader(site.cluster.bootstrap, site.ledger, site.logs, SEED) as last:
            last.do_round()
