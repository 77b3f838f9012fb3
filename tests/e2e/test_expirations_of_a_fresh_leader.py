"""A stock broker that was started again expires by `retention.bytes` before it could ask what is
copied: it would count what is on its disk and in the tier twice (KAFKA-20732).
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.lying_proxy import Lie, LyingProxy
from tests.e2e.test_broker_that_tiers_in_trouble import Tiering
from tests.e2e.test_expirations_that_cannot_delete import EXPIRED_BYTES, MORE_BYTES, readable_bytes
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, broker_settings, site, topic_config
from tests.real.kafka import KAFKA_VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]

ON_DISK = {"retention.bytes": "100000000", "local.retention.bytes": "-2"}
"""All that is copied stays on the broker's disk, too."""
SEGMENTS = 14
RUNS_S = 20
"""Many runs of the broker's expiration."""
ASKED = 5


def copied(there: Tiering) -> list[dict[str, object]]:
    """The segments that the tier has."""
    return [row for row in there.tier.segments() if row["state"] == "COPY_SEGMENT_FINISHED"]


def expire(there: Tiering, rows: list[dict[str, object]]) -> int:
    """The broker is to keep all but some segments."""
    kept = sum(int(str(row["size_bytes"])) for row in rows) - EXPIRED_BYTES
    there.broker.alter_topic(TOPIC, {"retention.bytes": str(kept)})
    return kept


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
@pytest.mark.parametrize("answered", [False, True])
def test_no_more_expires_than_is_due_before_a_leader_knows_what_is_copied(
    tmp_path: Path, version: str, answered: bool
) -> None:
    """`answered`: the node answers its question, and the answer does not reach the broker."""
    with site(tmp_path, version) as (broker, node), LyingProxy(node.url) as proxy:
        there = Tiering(broker, TierClient(node.url, TOPIC, 0))
        broker.create_topic(TOPIC, config=topic_config(version) | ON_DISK)
        there.write_until_copied(SEGMENTS)
        broker.wait_until(
            lambda: len(copied(there)) == len(broker.segment_files(TOPIC, 0)) - 1,
            "a copy of all that is sealed, which stays on the disk",
        )
        rows = copied(there)
        proxy.unheard = () if answered else ("highest",)
        proxy.lies = {"highest": Lie.PAGE} if answered else {}
        broker.restart(overrides=broker_settings(proxy.url))
        broker.wait_until(lambda: proxy.told["highest"] >= ASKED, "its copy task to ask")
        kept = expire(there, rows)
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) > kept - MORE_BYTES
        proxy.unheard, proxy.lies = (), {}
        broker.wait_until(lambda: readable_bytes(there, rows) < kept + EXPIRED_BYTES, "expiry")
        time.sleep(RUNS_S / 2)
        assert readable_bytes(there, rows) > kept - MORE_BYTES
