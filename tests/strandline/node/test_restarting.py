"""The nodes of a new quorum begin from one snapshot, whenever each of them is formatted."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, InvalidRequest, NotFound, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.control.audit import AuditAction
from rlm.control.surroundings import Identity
from rlm.node_files.audit_log import DIRECTORY_NAME as AUDIT_DIRECTORY
from rlm.node_files.audit_log import read_newest
from rlm.stores.cluster_marker import ClusterMarker, claim_prefix, take_over
from rlm.stores.snapshot_plan import snapshot_key
from rlm.stores.tier_store import TierStore
from rlmm.data_directory.data_directory import META_PROPERTIES, open_data_directory
from rlmm.log.disk import OsDisk
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import (
    SnapshotWriter,
    parse_snapshot_file_name,
    read_snapshot,
    snapshot_file_name,
)
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import SnapshotId
from rlmm.quorum.config import Ambient, Place, QuorumConfig
from rlmm.quorum.framing import voter_set
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.quorum.server import DriverServer
from rlmm.raft.messages import ReplicaKey
from rlmm.records.control_records import PartitionAdopted, Reconciled
from rlmm.rows.feature_level import LEVELS_KNOWN
from rlmm.rows.keys import FEATURE_LEVEL_KEY
from rlmm.rows.snapshot_rows import from_proposals, to_proposals
from rlmm.rows.values import encode_feature_level
from rlmm.view.view import View
from rsm_backends.filesystem import FilesystemStore
from strandline.node import restarting
from strandline.node.formatting import NewNode, format_for
from strandline.node.reconciling import run_reconcile
from strandline.settings.settings import (
    NodeSettings,
    QuorumSettings,
    Settings,
    StoreSettings,
)
from tests.rlmm.metadata_node import (
    NOW_MS,
    PARTITION,
    copied,
    finished,
    incarnation,
    running_node,
    started,
)
from tests.rlmm.quorum.local_network import LocalPeers, Network, voters_of

OLD, NEW, OTHER = Uuid(b"cluster-old....."), Uuid(b"cluster-new....."), Uuid(b"cluster-other...")
KAFKA = "kafka-cluster"
NODES = (1, 2, 3)
MARKER = Path("_strandline", "cluster.json")
DEADLINE_S = 20


class Site:
    """A store with the lost cluster's snapshots `earlier` and `last`, and room for new nodes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._root = home / "tier"
        self._root.mkdir()
        self.stores = {"main": StoreSettings(kind="filesystem", path=self._root)}

    async def lose_a_cluster(self) -> None:
        tier = TierStore("main", FilesystemStore(self._root), "")
        await claim_prefix(tier, Identity(str(OLD), KAFKA, incarnation()), deadline_s=DEADLINE_S)
        await tier.store.close()
        async with running_node(self.home / "old") as lost:
            taken = []
            for number in range(2):
                await copied(lost.manager, 1, first=number)
                taken.append(await lost.manager.take_snapshot())
        folder = self.home / "old" / "metadata" / PARTITION_DIRECTORY
        self.earlier, self.last = (folder / snapshot_file_name(each) for each in taken)
        self.upload(OLD, self.earlier, self.last)

    def upload(self, cluster: Uuid, *paths: Path, store: str = "main") -> None:
        """As the leader of that cluster does."""
        for path in paths:
            snapshot = parse_snapshot_file_name(path.name)
            assert snapshot is not None
            key = Path(str(self.stores[store].path)) / snapshot_key("", str(cluster), snapshot)
            key.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, key)

    def data(self, node_id: int) -> Path:
        return self.home / f"data-{node_id}"

    def first_snapshot(self, node_id: int) -> bytes:
        """The content of the snapshot that a formatted node begins with."""
        return (self.data(node_id) / "metadata" / PARTITION_DIRECTORY / self.last.name).read_bytes()

    async def give_another_store_to(self, cluster: Uuid) -> None:
        """From here on the settings name it; this is the cluster that has it."""
        folder = self.home / "archive"
        folder.mkdir()
        self.stores["archive"] = StoreSettings(kind="filesystem", path=folder)
        tier = TierStore("archive", FilesystemStore(folder), "")
        await claim_prefix(
            tier, Identity(str(cluster), KAFKA, incarnation()), deadline_s=DEADLINE_S
        )
        await tier.store.close()

    def owners(self) -> dict[str, str]:
        """Cluster ids in the stores' markers."""
        markers = {name: Path(str(each.path)) / MARKER for name, each in self.stores.items()}
        return {name: json.loads(path.read_text())["clusterId"] for name, path in markers.items()}

    def format(
        self,
        node_id: int,
        source: str | Path | None,
        cluster: Uuid = NEW,
        *,
        confirmed: bool = True,
    ) -> None:
        """`strandline format --cluster-id .. --initial-voters .. [--from-snapshot .. --yes]`"""
        settings = Settings(node=NodeSettings(data_dir=self.data(node_id)), stores=self.stores)
        new = NewNode(
            cluster_id=cluster,
            kafka_cluster_id=KAFKA,
            node_id=node_id,
            initial_voters=voters_of(*NODES),
        )
        given = None if source is None else str(source)
        confirmed = confirmed and given is not None
        assert format_for(settings, new, from_snapshot=given, confirmed=confirmed)

    def check_refused(
        self, node_id: int, source: str | Path, words: str, cluster: Uuid = NEW
    ) -> None:
        with pytest.raises(InvalidRequest, match=words):
            self.format(node_id, source, cluster)
        assert not (self.data(node_id) / META_PROPERTIES).exists()


class Node:
    """A formatted node's log, view and manager while they run; no wire."""

    def __init__(self, network: Network, node_id: int) -> None:
        self._network = network
        self.node_id = node_id

    async def start(self, path: Path) -> None:
        loop = asyncio.get_running_loop()
        directory = open_data_directory(path)
        self.snapshots = directory.metadata_path / PARTITION_DIRECTORY
        async with AsyncExitStack() as running:
            running.callback(directory.close)
            view = View.open(directory.view_path)
            running.callback(view.close)
            log = await QuorumLog.open(
                Place(directory.metadata_path),
                QuorumConfig(
                    str(directory.cluster_id),
                    ReplicaKey(self.node_id, str(directory.directory_id)),
                    voter_set(directory.initial_voters),
                    bootstrap=tuple((each, f"node-{each}", 9) for each in NODES),
                    settings=self._network.settings,
                ),
                LocalPeers(self._network, self.node_id),
                view_flushed_end=view.flushed_offset + 1,
                ambient=Ambient(
                    lambda: NOW_MS, loop.time, asyncio.sleep, lambda: self.node_id * 0.3 % 1
                ),
                on_failure=print,
            )
            running.push_async_callback(log.close)
            self._network.servers[self.node_id] = DriverServer(log, now_ms=lambda: NOW_MS)
            self.manager = await RemoteLogMetadataManager.start(
                log, view, incarnation=incarnation(), now_ms=lambda: NOW_MS, on_failure=print
            )
            running.push_async_callback(self.manager.close)
            self._running = running.pop_all()

    async def stop(self) -> None:
        self._network.servers.pop(self.node_id)
        await self._running.aclose()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    asyncio.run(site.lose_a_cluster())
    return site


def test_a_voter_that_is_formatted_late_has_the_state_of_the_others(site: Site) -> None:
    for early in (1, 2):
        site.format(early, "latest")
    asyncio.run(begun_without_the_third(site))


async def begun_without_the_third(site: Site) -> None:
    network = Network()
    one, two, three = nodes = [Node(network, each) for each in NODES]
    await asyncio.gather(*(node.start(site.data(node.node_id)) for node in (one, two)))
    token = await copied(one.manager, 1, first=2, boot=2)
    await one.manager.record_restart(PartitionAdopted(PARTITION, token))
    restart = one.manager.restart()
    assert restart is not None
    await one.manager.record_restart(Reconciled(restart.offset))
    own = one.snapshots / snapshot_file_name(await one.manager.take_snapshot())
    # Before it is in the store: `latest` is what the cluster began with, a file may be any.
    await asyncio.to_thread(site.check_refused, 3, own, site.last.name)
    site.upload(NEW, own)
    for source in ("latest", own, site.last):
        await asyncio.to_thread(site.check_refused, 3, source, "without --from-snapshot")

    await asyncio.to_thread(site.format, 3, None)
    await three.start(site.data(3))
    segment = started(3, token, boot=2)
    await one.manager.add_remote_log_segment_metadata(segment)
    end = await one.manager.update_remote_log_segment_metadata(finished(segment, boot=2))
    for node in nodes:
        await node.manager.wait_for_offset(end, deadline_s=DEADLINE_S)
    assert len({node.manager.digest() for node in nodes}) == 1
    assert not three.manager.describe().remembers_nothing
    for node in nodes:
        await node.stop()


def test_until_the_new_cluster_has_a_snapshot_its_nodes_begin_alike_one_after_the_other(
    site: Site,
) -> None:
    site.format(1, "latest")
    site.format(2, site.last)  # the same one, from somewhere else
    site.upload(OLD, Path(shutil.copyfile(site.last, site.home / later_name(site.last))))
    site.check_refused(3, "latest", site.last.name)
    site.format(3, site.last)
    assert len({site.first_snapshot(each) for each in NODES}) == 1


def later_name(path: Path) -> str:
    snapshot = parse_snapshot_file_name(path.name)
    assert snapshot is not None
    return snapshot_file_name(SnapshotId(snapshot.end_offset + 1, snapshot.epoch))


def test_another_snapshot_of_the_lost_cluster_is_no_beginning_for_one_node(site: Site) -> None:
    site.format(1, "latest")
    site.check_refused(2, site.earlier, f"began with the snapshot {site.last.name}")
    altered = site.home / "altered" / site.last.name
    altered.parent.mkdir()
    shutil.copyfile(site.earlier, altered)
    site.check_refused(2, altered, f"began with the snapshot {site.last.name}")
    site.format(2, "latest")


def test_the_latest_snapshot_may_be_in_another_store_than_the_default_one(site: Site) -> None:
    """Another store was the default one before, or still is on some nodes."""
    asyncio.run(site.give_another_store_to(OLD))
    later = Path(shutil.copyfile(site.last, site.home / later_name(site.last)))
    site.upload(OLD, later, store="archive")
    with pytest.raises(InvalidRequest, match=f"later snapshot.*{later.name}"):
        site.format(1, site.last, confirmed=False)
    site.format(1, "latest")
    began = json.loads((site.home / "archive" / MARKER).read_text())["beganWith"]
    assert began.startswith(later.name)
    site.upload(NEW, later, store="archive")
    site.check_refused(2, "latest", "without --from-snapshot")


def test_a_lost_marker_is_told_with_its_text_and_what_is_there_is_found_with_it(site: Site) -> None:
    marker = site.home / "tier" / MARKER
    marker.unlink()
    with pytest.raises(NotFound, match=f"snapshots of the Strandline clusters {OLD}") as told:
        site.format(1, "latest")
    assert not (site.data(1) / META_PROPERTIES).exists()
    marker.write_text(str(told.value).partition(" with ")[2])
    site.format(1, "latest")
    assert site.owners() == {"main": str(NEW)}


def test_before_anything_happens_it_is_told_that_the_store_has_a_later_snapshot(site: Site) -> None:
    with pytest.raises(InvalidRequest, match=f"later snapshot.*{site.last.name}") as told:
        site.format(1, site.earlier, confirmed=False)
    assert "most of its voters" in str(told.value)
    assert f"'main' ({site.home / 'tier'})" in str(told.value)
    for source in ("latest", site.last):
        with pytest.raises(InvalidRequest, match="give --yes") as other:
            site.format(1, source, confirmed=False)
        assert "later snapshot" not in str(other.value)


def test_one_node_of_several_begins_no_cluster_of_its_own_by_accident(site: Site) -> None:
    """The next one would take the prefix from it, and so on."""
    settings = Settings(
        node=NodeSettings(data_dir=site.data(1)),
        stores=site.stores,
        quorum=QuorumSettings(listen="127.0.0.1:9481", secret_file=site.home / "secret"),
    )
    before = site.owners()
    alone = NewNode(kafka_cluster_id=KAFKA, node_id=1)
    with pytest.raises(InvalidRequest, match=r"the only voter.*--initial-voters"):
        format_for(settings, alone, from_snapshot="latest", confirmed=True)
    assert site.owners() == before
    format_for(settings, replace(alone, standalone=True), from_snapshot="latest", confirmed=True)


def test_a_store_that_was_left_out_is_taken_over_when_that_is_said(site: Site) -> None:
    alone = NewNode(kafka_cluster_id=KAFKA, node_id=1)
    node = NodeSettings(data_dir=site.data(1))
    format_for(
        Settings(node=node, stores=site.stores), alone, from_snapshot="latest", confirmed=True
    )
    asyncio.run(site.give_another_store_to(OLD))
    settings = Settings(node=node, stores=site.stores)

    def compare(*take_over: str) -> None:
        run_reconcile(settings, record=False, accept_missing=None, take_over=take_over)

    with pytest.raises(Refused, match="reconcile --take-over archive"):
        compare()
    for wrong in ("archives", "main"):
        with pytest.raises(
            InvalidRequest,
            match=r"not a store besides the default store: give one of \['archive'\]",
        ):
            compare(wrong)
    assert site.owners()["archive"] == str(OLD)
    compare("archive")
    assert len(set(site.owners().values())) == 1
    compare()
    page = read_newest(site.data(1) / AUDIT_DIRECTORY, None, 10, lambda _: True)
    assert [(line.action, line.by, line.why.rpartition("; ")[2]) for line in page.lines] == [
        (AuditAction.PREFIX_TAKEN_OVER, "node 1, reconcile", "stores: archive"),
        (AuditAction.PREFIX_TAKEN_OVER, "node 1, format", "stores: main"),
    ]


def test_a_cluster_never_begins_again_from_its_own_snapshot(site: Site) -> None:
    site.check_refused(1, "latest", "new cluster id", OLD)
    site.format(1, "latest")
    site.check_refused(2, site.last, "new cluster id", OLD)
    # With new ids any snapshot may be chosen anew.
    site.format(2, site.earlier, OTHER)
    site.check_refused(3, "latest", "new cluster id", NEW)


def test_a_store_of_another_cluster_in_the_settings_is_not_taken_over_with_the_lost_ones(
    site: Site,
) -> None:
    """A wrong prefix of a second store would end a cluster that nobody gave up."""
    asyncio.run(site.give_another_store_to(OTHER))
    before = site.owners()
    site.check_refused(1, "latest", f"'archive' belongs to the Strandline cluster {OTHER}")
    assert site.owners() == before


def test_a_store_of_one_before_the_lost_cluster_is_its_own_by_any_of_its_markers(
    site: Site,
) -> None:
    """The default store may have come after the takeover that left it out."""
    asyncio.run(site.give_another_store_to(OTHER))
    later = site.home / "later"
    later.mkdir()
    site.stores["later"] = StoreSettings(kind="filesystem", path=later)
    marker = ClusterMarker(str(OLD), KAFKA, (str(OTHER),), "later", "a snapshot")
    (later / MARKER).parent.mkdir()
    (later / MARKER).write_bytes(marker.encode())
    site.format(1, "latest")
    assert set(site.owners().values()) == {str(NEW)}


@pytest.mark.parametrize("call", ["read_marker", "uploaded_snapshots"])
def test_a_store_that_says_nothing_is_named_with_what_may_be_done(
    site: Site, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    asyncio.run(site.give_another_store_to(OLD))
    asked = getattr(restarting, call)

    async def silent(tier: TierStore, *more: str) -> object:
        if tier.name == "archive":
            await asyncio.sleep(DEADLINE_S)
        return await asked(tier, *more)

    before = site.owners()
    monkeypatch.setattr(restarting, call, silent)
    monkeypatch.setattr(restarting, "STORE_DEADLINE_S", 0.5)
    with pytest.raises(RetryLater, match=r"'archive' did not answer within 0\.5 s.*left out"):
        site.format(1, "latest")
    assert site.owners() == before


def test_all_stores_of_the_lost_cluster_are_taken_over_at_once(site: Site) -> None:
    asyncio.run(site.give_another_store_to(OLD))
    site.format(1, "latest")
    assert set(site.owners().values()) == {str(NEW)}
    site.format(2, "latest")


def test_a_takeover_that_ended_before_the_second_store_may_be_repeated_with_new_ids(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(site.give_another_store_to(OLD))
    site.stores = dict(reversed(site.stores.items()))  # the default one last
    taken = []

    async def die_at_the_second(
        tier: TierStore, *markers: ClusterMarker, deadline_s: float
    ) -> None:
        taken.append(tier.name)
        if len(taken) == 2:
            raise RetryLater("the machine is gone")
        await take_over(tier, *markers, deadline_s=deadline_s)

    with monkeypatch.context() as patched:
        patched.setattr(restarting, "take_over", die_at_the_second)
        with pytest.raises(RetryLater):
            site.format(1, "latest")
    assert taken == ["main", "archive"]
    site.format(1, "latest", OTHER)
    assert set(site.owners().values()) == {str(OTHER)}


@pytest.mark.parametrize("rival", [NEW, OTHER])
def test_two_voters_that_are_formatted_at_once_take_over_together(
    site: Site, monkeypatch: pytest.MonkeyPatch, rival: Uuid
) -> None:
    async def second(
        tier: TierStore, before: ClusterMarker, after: ClusterMarker, *, deadline_s: float
    ) -> None:
        began = after.began_with
        assert began is not None
        first = before.successor(str(rival), KAFKA, began_with=began)
        await take_over(tier, before, first, deadline_s=deadline_s)
        await take_over(tier, before, after, deadline_s=deadline_s)

    monkeypatch.setattr(restarting, "take_over", second)
    if rival == NEW:
        site.format(1, "latest")
    else:
        with pytest.raises(Conflict, match="a different cluster takes the prefix over"):
            site.format(1, "latest")
    assert set(site.owners().values()) == {str(rival)}
    assert (site.data(1) / META_PROPERTIES).exists() is (rival == NEW)


def test_a_snapshot_of_a_later_release_is_refused_before_anything_is_taken_over(site: Site) -> None:
    """Rows of a level that is not known here would be restarted by the wrong rules."""
    level = LEVELS_KNOWN.highest + 1
    later, before = of_level(site, level), site.owners()
    with pytest.raises(Refused, match=f"feature level {level}.*run a newer Strandline"):
        site.format(1, later)
    assert not (site.data(1) / META_PROPERTIES).exists()
    assert site.owners() == before
    site.format(1, "latest")


def of_level(site: Site, level: int) -> Path:
    """The last snapshot, as if that feature level had been finalised."""
    disk, snapshot = OsDisk(), parse_snapshot_file_name(site.last.name)
    assert snapshot is not None
    folder = site.home / "later"
    folder.mkdir()
    rows = [(FEATURE_LEVEL_KEY, encode_feature_level(level, 1))]
    rows += from_proposals(read_snapshot(disk, site.last))
    writer = SnapshotWriter(
        disk, folder, snapshot, last_contained_timestamp_ms=NOW_MS, voters=voters_of(1)
    )
    writer.add(to_proposals(rows))
    return writer.finish()
