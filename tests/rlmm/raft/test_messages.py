"""What replicas say to each other, in Kafka's words."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from rlmm.raft.messages import Error


def test_errors_have_kafkas_codes() -> None:
    assert {each.name: each.value for each in Error} == {
        each.name: ErrorCode[each.name.lower()].value for each in Error
    }
