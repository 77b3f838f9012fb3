"""A log that a broker leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rlm.kafka_logs import KafkaLog, new_log_dir


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Segments at 0, 10 and 20 (active), all of epoch 0."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log
