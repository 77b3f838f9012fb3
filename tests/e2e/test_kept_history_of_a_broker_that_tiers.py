"""A stock broker expires by `retention.bytes` above segments that its node keeps below its log
start, since they may be from before the present mode: of its own it counts them, and deletes as
much of what is readable.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.http import PLAIN
from tests.e2e.test_broker_that_tiers_in_trouble import Tiering
from tests.e2e.test_expirations_of_a_fresh_leader import copied
from tests.e2e.test_expirations_that_cannot_delete import EXPIRED_BYTES, MORE_BYTES, readable_bytes
from tests.e2e.tier_client import TierClient
from tests.e2e.tiering_broker import TOPIC, site, topic_config
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import log_bounds

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]

SEGMENTS = 20
RUNS_S = 15
"""Many runs of the broker's expiration."""


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
def test_what_is_kept_below_a_log_start_does_not_expire_what_is_readable(
    tmp_path: Path, version: str
) -> None:
    with site(tmp_path, version) as (broker, node):
        there = Tiering(broker, TierClient(node.url, TOPIC, 0))
        broker.create_topic(TOPIC, config=topic_config(version))
        there.write_until_copied(SEGMENTS)
        broker.wait_until(lambda: len(broker.segment_files(TOPIC, 0)) <= 2, "local retention")

        def set_mode(mode: str) -> None:
            url = f"{node.url}/v1/topics/{TOPIC}/partitions/0/mode"
            answer = PLAIN.put(url, json={"mode": mode, "confirm": TOPIC})
            assert answer.status_code == 200, answer.text

        def log_start() -> int:
            return log_bounds(broker.bootstrap, TOPIC, 0)[0]

        set_mode("paused")
        time.sleep(2)  # a run may be under way
        rows = copied(there)
        began = int(str(rows[len(rows) // 2]["start_offset"]))
        broker.delete_records(TOPIC, 0, began)
        readable = readable_bytes(there, rows)
        below = sum(int(str(row["size_bytes"])) for row in rows) - readable
        assert below > 2 * MORE_BYTES + EXPIRED_BYTES
        broker.alter_topic(TOPIC, {"retention.bytes": str(readable + MORE_BYTES)})
        set_mode("delegated")

        def is_refused() -> bool:
            error = there.tier.status()["last_error"]
            return error is not None and f"began at {began}" in str(error)

        broker.wait_until(lambda: is_refused() or log_start() > began, "a run of the expiration")
        time.sleep(RUNS_S)
        assert log_start() == began
        assert copied(there)[: len(rows)] == rows
        kept = readable - EXPIRED_BYTES
        broker.alter_topic(TOPIC, {"retention.bytes": str(kept)})
        broker.wait_until(lambda: len(copied(there)) < len(rows) // 2, "expiry")
        time.sleep(RUNS_S)
        assert kept - MORE_BYTES < readable_bytes(there, rows) < readable
        assert int(str(copied(there)[0]["end_offset"])) >= log_start() > began
