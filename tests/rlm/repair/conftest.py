"""What every repair begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rlm.held_segments import four_segments
from tests.rlm.kafka_logs import KafkaLog


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return four_segments(tmp_path)
