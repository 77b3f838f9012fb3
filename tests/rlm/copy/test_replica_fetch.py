"""How much of an answer a node takes from another broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafka_client.replica_answers import Replicas
from kafka_formats.errors import RetryLater
from rlm.copy.replica_fetch import FETCH_BYTES, ReplicaFetch
from rlm.leadership.leadership import NoAnswer
from tests.rlm.planner_facts import PARTITION


@dataclass
class View:
    """Knows one replica, which is down."""

    bounds: list[int] = field(default_factory=list)

    async def ask(self, _: object) -> Replicas:
        return Replicas((2,), {2: ("broker-2", 9092)})

    async def connect(self, host: str, port: int, *, response_bytes_max: int) -> Any:
        self.bounds.append(response_bytes_max)
        raise RetryLater(f"no answer from {host}:{port}")


@pytest.mark.parametrize("batch_bytes_max", [1 << 20, 128 << 20, 500 << 20])
async def test_an_answer_may_have_a_batch_of_the_size_that_is_copied(batch_bytes_max: int) -> None:
    view = View()
    fetch = ReplicaFetch(cast(Any, view), batch_bytes_max)
    assert await fetch.replicas(PARTITION) == (2,)
    assert isinstance(await fetch.fetch(2, PARTITION, 0), NoAnswer)
    (bound,) = view.bounds
    assert bound > max(batch_bytes_max, FETCH_BYTES)
