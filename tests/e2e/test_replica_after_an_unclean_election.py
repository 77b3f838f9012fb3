"""A consumer through a read replica after an unclean election, before any node has claimed for the
new leader: it does not see what the election cut off, whatever local retention takes meanwhile.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.e2e.broker_site import Site, open_site
from tests.e2e.test_leaders_and_followers import LEADER, OTHER, tier, write, write_beyond_a_follower
from tests.e2e.test_read_replicas import consumer
from tests.e2e.test_replicas_in_trouble import with_replicas
from tests.real.kafka_clients import consume_all

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(300)]

TOPIC = "unclean"
QUIET_POLLS = 6
Values = dict[int, bytes]


def read_from(bootstrap: str, start: int) -> Values:
    """Values by offset, in order and each once, until nothing came for three seconds."""
    found: Values = {}
    client = consumer(bootstrap, isolation_level="read_uncommitted")
    try:
        client.assign([TopicPartition(TOPIC, 0, start)])
        quiet, polls = 0, QUIET_POLLS * 2
        while quiet < polls:
            message = client.poll(0.5)
            if message is None:
                quiet += 1
                continue
            assert message.error() is None, message.error()
            offset = message.offset() or 0
            assert offset > max(found, default=-1)
            found[offset] = message.value() or b""
            quiet, polls = 0, QUIET_POLLS
    finally:
        client.close()
    return found


def of_the_leader(site: Site) -> Values:
    return {
        each.offset: each.value or b"" for each in consume_all(site.cluster.bootstrap, TOPIC, 0)
    }


def test_what_was_cut_off_is_not_read_while_nobody_has_claimed(tmp_path: Path) -> None:
    with open_site(tmp_path, seed=0) as site, with_replicas(site) as replicas:
        cluster, quorum = site.cluster, site.quorum
        common, diverged_end = write_beyond_a_follower(site, TOPIC)
        assert max(read_from(replicas.bootstrap, 0)) >= diverged_end - 1, "all of it is served"

        quorum.nodes[OTHER].kill()  # nobody is to claim for the leader that comes
        cluster.brokers[LEADER].kill()
        cluster.brokers[OTHER].start()
        quorum.wait_until(lambda: cluster.leader(TOPIC, 0) == OTHER, "an unclean election")
        cut = max(of_the_leader(site)) + 1
        assert common <= cut < diverged_end
        write(site, TOPIC, 2_500)
        truth = of_the_leader(site)
        assert max(truth) > diverged_end
        assert read_from(replicas.bootstrap, 0) == truth

        broker = cluster.brokers[OTHER]
        broker.alter_topic(TOPIC, {"retention.bytes": "1"})
        quorum.wait_until(
            lambda: int(broker.segment_files(TOPIC, 0)[0].stem) > cut, "local retention"
        )
        local_start = int(broker.segment_files(TOPIC, 0)[0].stem)
        # The leader does not know any more where the epoch before it ended: old offsets may wait.
        waiting = read_from(replicas.bootstrap, 0)
        assert waiting.items() <= truth.items(), "nothing of what was cut off"
        behind = read_from(replicas.bootstrap, local_start)
        assert behind == {at: value for at, value in truth.items() if at >= local_start}

        quorum.nodes[OTHER].start()  # it claims, and finds that the offsets between are lost
        client = tier(site, TOPIC, OTHER)
        quorum.wait_until(lambda: bool(client.status().get("lost_ranges")), "the lost range")
        whole = read_from(replicas.bootstrap, 0)
        # Where the logs parted nobody knows any more: docs/OPERATIONS.md, "Read replicas".
        certain = {at: value for at, value in whole.items() if not cut <= at < diverged_end}
        assert certain.items() <= truth.items()
        assert set(certain) >= set(range(common)) | set(behind)
