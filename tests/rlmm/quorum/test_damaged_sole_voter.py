"""A sole voter whose newest snapshot is damaged, while its log and its view are whole."""

from __future__ import annotations

import asyncio

import pytest

from rlmm.log.log_limits import LogLimits
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import snapshot_file_name
from rlmm.metadata_log import SnapshotId
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import METADATA, Network, Replica, voters_of

FROM_DISK = LogLimits(recent_bytes_max=0, segment_bytes_max=400, retain_bytes_max=0)
PARTITION = METADATA / PARTITION_DIRECTORY
ASKED_FOR_S = 5.0
LIVES = 3


async def _with_a_damaged_snapshot(voter: Replica) -> None:
    """One bit of a row is turned over; everything else on the disk is as it was written."""
    for each in range(20):
        end = await voter.log.propose(data(b"%d" % each), deadline_s=10) + 1
    snapshot = SnapshotId(end, voter.log.driver.core.epoch_of(end - 1))
    voter.log.allow_truncation_to(end)
    sink = await voter.log.begin_snapshot(snapshot, last_contained_timestamp_ms=5)
    for each in range(2_000):
        await sink.add(data(b"row %04d %s" % (each, b"x" * 100)))
    await sink.finish()
    assert voter.log.describe().log_start_offset > 0
    path = PARTITION / snapshot_file_name(snapshot)
    voter.disk.damage(path, voter.disk.size(path) - 20_000, bit=6)


@pytest.mark.parametrize("observed", [False, True], ids=["alone", "an observer joins"])
def test_a_sole_voter_whose_own_state_is_whole_goes_on(observed: bool) -> None:
    """Nobody leads in its place, and it can take another snapshot of its view at any time."""

    async def main() -> None:
        network = Network()
        voter = Replica(network, 1, voters_of(1))
        observer = Replica(network, 2, (), bootstrap=(1,))
        await voter.start(limits=FROM_DISK)
        await _with_a_damaged_snapshot(voter)
        if observed:
            await observer.start(limits=FROM_DISK)
        told: list[str] = []
        for _ in range(LIVES):  # its supervisor starts it again
            await asyncio.sleep(ASKED_FOR_S)
            told += voter.failures
            voter.failures.clear()
            await voter.stop()
            await voter.start(limits=FROM_DISK)
            await voter.log.propose(data(b"its log is whole"), deadline_s=10)
        for each in (voter, observer):
            if each.running:
                await each.stop()
        assert told == [], f"stopped in {len(told)} of {LIVES} lives"

    run_virtually(main)


def test_a_sole_voter_with_a_damaged_log_is_not_told_that_others_lead() -> None:
    async def main() -> None:
        network = Network()
        voter = Replica(network, 1, voters_of(1))
        observer = Replica(network, 2, (), bootstrap=(1,))
        await voter.start(limits=FROM_DISK)
        for number in range(20):
            await voter.log.propose(data(b"%d" % number), deadline_s=10)
        first = min(name for name in voter.disk.list_names(PARTITION) if name.endswith(".log"))
        voter.disk.damage(PARTITION / first, 14, bit=6)
        await observer.start(limits=FROM_DISK)
        await asyncio.sleep(ASKED_FOR_S)
        (failure,) = voter.failures
        assert "No other node can lead meanwhile" in failure
        for each in (voter, observer):
            await each.stop()

    run_virtually(main)
