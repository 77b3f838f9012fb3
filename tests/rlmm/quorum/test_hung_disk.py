"""A leader whose disk hangs: another node leads, and what waits for the disk stays bounded."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from kafka_formats.errors import OutcomeUnknown
from rlmm.log.log_limits import LogLimits
from tests.rlmm.quorum.following import data
from tests.rlmm.quorum.local_network import NODES, Network, Replica, leader_of, voters_of

HUNG_FOR_S = 60.0


@pytest.mark.timeout(120)
async def test_another_node_leads_while_a_leaders_disk_hangs_and_it_comes_back() -> None:
    network = Network()
    replicas = [Replica(network, node_id, voters_of(*NODES)) for node_id in NODES]
    for replica in replicas:
        await replica.start(limits=LogLimits(recent_bytes_max=100_000))
    hung = await leader_of(replicas)
    others = [replica for replica in replicas if replica is not hung]
    answers = threading.Event()

    def hang() -> None:
        answers.wait(HUNG_FOR_S)

    hung.disk.before_sync = hang
    try:
        async with asyncio.timeout(HUNG_FOR_S / 2):
            while not any(each.log.driver.core.established for each in others):
                with suppress(OutcomeUnknown):  # it was on its way when the leader gave up
                    await others[0].log.propose(data(b"x" * 10_000), deadline_s=HUNG_FOR_S / 2)
        waiting = hung.log.describe().log_end_offset
        for _ in range(20):
            offset = await others[0].log.propose(data(b"y" * 10_000), deadline_s=HUNG_FOR_S / 2)
        assert hung.log.describe().log_end_offset == waiting <= offset - 20
        assert hung.failures == []
    finally:
        hung.disk.before_sync = lambda: None
        answers.set()
    async with asyncio.timeout(HUNG_FOR_S / 2):
        while hung.log.driver.apply_to <= offset:
            await asyncio.sleep(0.01)
    for replica in replicas:
        assert replica.failures == []
        await replica.stop()
