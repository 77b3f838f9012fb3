"""[LOSS-8] The fingerprint of messages changes with every change that pickle would not notice."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import make_dataclass
from enum import Enum

import pytest

from rlm.data_plane.copy_job import CopyResult
from rlm.worker.message_shapes import message_shapes

FIELDS = (("log_bytes", int), ("max_timestamp_ms", int))


def result_of(names: Iterable[tuple[str, type]]) -> type:
    """`Result` as in a release with these fields."""
    made = make_dataclass("Result", names, frozen=True, slots=True)
    made.__module__ = __name__
    return made


def test_pickle_reads_values_into_the_fields_of_a_different_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, receiver = result_of(FIELDS), result_of(reversed(FIELDS))
    monkeypatch.setitem(globals(), "Result", sender)
    sent = pickle.dumps(sender(7_000, 1_700_000_000_000))
    monkeypatch.setitem(globals(), "Result", receiver)
    assert pickle.loads(sent) == receiver(log_bytes=1_700_000_000_000, max_timestamp_ms=7_000)


@pytest.mark.parametrize(
    "names",
    [
        tuple(reversed(FIELDS)),
        FIELDS[:1],
        (*FIELDS, ("cleaned", bool)),
        (("log_bytes", int), ("max_timestamp_s", int)),
        (("log_bytes", int), ("max_timestamp_ms", float)),
    ],
)
def test_a_change_of_a_field_changes_the_fingerprint(names: tuple[tuple[str, type], ...]) -> None:
    assert message_shapes(result_of(FIELDS)) == message_shapes(result_of(FIELDS))
    assert message_shapes(result_of(names)) != message_shapes(result_of(FIELDS))


def test_so_does_a_change_in_a_class_of_a_field() -> None:
    def within(names: Iterable[tuple[str, type]]) -> type:
        inner = make_dataclass("Inner", names, frozen=True, slots=True)
        inner.__module__ = __name__
        return result_of((("inner", tuple[inner, ...]),))  # type: ignore[valid-type]

    assert message_shapes(within(FIELDS)) == message_shapes(within(FIELDS))
    assert message_shapes(within(FIELDS)) != message_shapes(within(reversed(FIELDS)))


def test_so_does_a_change_of_an_enum() -> None:
    before, after = Enum("Origin", {"COPIED": "copied"}), Enum("Origin", {"COPIED": "taken"})
    assert message_shapes(before) != message_shapes(after)


def test_the_messages_include_the_results_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    before = message_shapes()
    assert before == message_shapes()
    swapped = dict(reversed(CopyResult.__dataclass_fields__.items()))
    monkeypatch.setattr(CopyResult, "__dataclass_fields__", swapped)
    assert message_shapes() != before
