"""Stores of erased segments are remembered by partition, up to a bound."""

from __future__ import annotations

import pytest

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.reconcile import unseen_stores
from rlm.reconcile.erasure_plan import Scope
from rlm.reconcile.unseen_stores import StoresOfErased
from tests.rlm.planner_facts import uuid


def test_a_scope_has_the_stores_of_its_partitions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_stores, "REMEMBERED_MAX", 2)
    erased, (old, new) = StoresOfErased(), (uuid(1), uuid(2))
    for store in ("a", "b", "a"):
        erased.note(TopicIdPartition("orders", old, 0), store)
    erased.note(TopicIdPartition("orders", new, 0), "c")
    assert set(erased.of(Scope("orders"))) == {"a", "b", "c"}
    assert set(erased.of(Scope("orders", old))) == {"a", "b"}
    assert set(erased.of(Scope("orders", new, 0, 15))) == {"c"}
    assert not erased.of(Scope("orders", new, 1, 15))
    assert not erased.of(Scope("payments"))
    erased.note(TopicIdPartition("payments", old, 0), "a")
    assert set(erased.of(Scope("orders"))) == {"c"}, "the first ones are forgotten"
