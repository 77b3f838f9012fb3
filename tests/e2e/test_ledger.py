"""The book that the auditor compares with: it must notice what it is for."""

from __future__ import annotations

from tests.e2e.ledger import Acknowledged, Ledger, LogKey, contradictions, value_of
from tests.real.kafka_clients import ConsumedRecord

KEY = LogKey("orders", 0, 1)


def read(*offsets: int) -> list[ConsumedRecord]:
    """What is read when record n lies at offset n."""
    return [ConsumedRecord(each, 1, None, value_of(each), ()) for each in offsets]


def booked() -> Acknowledged:
    """Records 0 to 5 at those offsets; 0 to 2 committed, 3 and 4 aborted, 5 undecided."""
    ledger = Ledger()
    for each in range(6):
        ledger.acknowledge(KEY, each, each)
    ledger.decide([(KEY, each) for each in (0, 1, 2)], committed=True)
    ledger.decide([(KEY, each) for each in (3, 4)], committed=False)
    return ledger.log(KEY)


def check(records: list[ConsumedRecord], *, start: int = 0, committed_only: bool) -> list[str]:
    return contradictions(booked(), records, start=start, end=6, committed_only=committed_only)


def test_all_that_was_acknowledged_and_nothing_aborted_is_right() -> None:
    assert check(read(*range(6)), committed_only=False) == []
    assert check(read(0, 1, 2), committed_only=True) == []
    assert check(read(0, 1, 2, 5), committed_only=True) == []  # whether 5 committed is not known


def test_a_record_that_is_missing_is_told_unless_retention_took_it() -> None:
    assert check(read(0, 2, 3, 4, 5), committed_only=False) == ["1 missing, first [1]"]
    assert check(read(2, 3, 4, 5), start=2, committed_only=False) == []


def test_another_value_at_an_offset_is_told() -> None:
    wrong = read(1)[0]._replace(offset=2)
    assert check([*read(0, 1, 3, 4, 5), wrong], committed_only=False) == ["1 wrong, first [2]"]


def test_an_aborted_record_in_a_committed_read_is_told() -> None:
    assert check(read(0, 1, 2, 4), committed_only=True) == ["1 aborted and yet read, first [4]"]
