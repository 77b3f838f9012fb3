"""The compiled kernel gives what the pure reader gives: the same rows, or the same error."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats import varints
from kafka_formats.compression import Codec
from kafka_formats.record_batch import Record, encode_batch, seal_batch
from kafka_formats.transaction_index import AbortedTransaction
from pipeline.decode.kernel_rows import KernelRows
from pipeline.decode.pure_rows import PureRows
from pipeline.decode.schema import COLUMNS
from tests.fuzz import repairs
from tests.pipeline.decode.decoding import outcome

PRODUCERS = 3

_short = st.binary(max_size=12)
_bytes = st.one_of(st.none(), _short, st.integers(0, 3000).map(bytes))
_headers = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=6), st.one_of(st.none(), _short)),
    max_size=3,
).map(tuple)
_times = st.one_of(
    st.integers(0, 2**41),
    st.sampled_from((-1, 0, 9_223_372_036_854_775, -9_223_372_036_854_775, 2**62)),
)


class BatchPlan(NamedTuple):
    """A batch behind the one before it."""

    gap: int
    deltas: list[int]
    contents: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]
    behind: int
    codec: Codec
    kind: str
    producer_id: int
    append_time_ms: int | None


_plans = st.builds(
    BatchPlan,
    gap=st.sampled_from((0, 0, 0, 1, 40)),
    deltas=st.lists(st.sampled_from((1, 1, 1, 2, 70)), max_size=12),
    contents=st.lists(st.tuples(_times, _bytes, _bytes, _headers), min_size=12, max_size=12),
    behind=st.sampled_from((0, 0, 3)),
    codec=st.sampled_from(Codec),
    kind=st.sampled_from(("plain", "plain", "transactional", "control")),
    producer_id=st.integers(0, PRODUCERS - 1),
    append_time_ms=st.one_of(st.none(), st.none(), _times),
)


def write(plans: list[BatchPlan], at: int = 0) -> bytes:
    """A log of these batches."""
    log = bytearray()
    for plan in plans:
        at += plan.gap
        records = []
        offset = at
        for delta, (time, key, value, headers) in zip(plan.deltas, plan.contents, strict=False):
            records.append(Record(offset, time, key, value, headers))
            offset += delta
        last = max(records[-1].offset if records else at, at) + plan.behind
        log += encode_batch(
            records,
            base_offset=at,
            codec=plan.codec,
            producer_id=plan.producer_id,
            transactional=plan.kind != "plain",
            control=plan.kind == "control",
            log_append_time_ms=plan.append_time_ms,
            last_offset=last,
        )
        at = last + 1
    return bytes(log)


_logs = st.lists(_plans, max_size=6).map(write)
_spans = st.tuples(st.integers(0, PRODUCERS - 1), st.integers(0, 150), st.integers(1, 150)).map(
    lambda span: AbortedTransaction(span[0], span[1], span[1] + span[2], span[1] + span[2] + 1)
)
_columns = st.one_of(
    st.just(COLUMNS),
    st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True).map(tuple),
)
_readers = st.fixed_dictionaries(
    {
        "columns": _columns,
        "first_offset": st.one_of(st.just(0), st.integers(0, 200)),
        "last_offset": st.one_of(st.just(2**62), st.integers(0, 400)),
        "aborted": st.lists(_spans, max_size=3),
        "read_committed": st.booleans(),
        "output_bytes": st.sampled_from((1, 300, 5_000, 2 << 20)),
        "records_bytes_max": st.sampled_from((1 << 20, 1 << 20, 2_000)),
        "piece_bytes": st.sampled_from((1 << 20, 1 << 20, 97, 1_000)),
    }
)


@settings(max_examples=80, deadline=None)
@given(log=_logs, reader=_readers)
def test_of_any_log_both_give_the_same_rows(log: bytes, reader: dict[str, object]) -> None:
    by_kernel = outcome(KernelRows, log, **reader)
    assert by_kernel == outcome(PureRows, log, **reader)


@settings(max_examples=80, deadline=None)
@given(
    log=_logs.filter(bool),
    reader=_readers,
    flips=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 2**20),
    repaired=st.booleans(),
)
def test_of_any_damaged_log_both_say_the_same(
    log: bytes,
    reader: dict[str, object],
    flips: list[tuple[int, int]],
    cut: int,
    repaired: bool,
) -> None:
    """Damage with a right CRC over it reaches what stands behind the CRC."""
    damaged = bytearray(log)
    for at, byte in flips:
        damaged[at % len(damaged)] = byte
    if cut % 3 == 0:
        del damaged[cut % len(damaged) :]
    data = repairs.batches(bytes(damaged)) if repaired else bytes(damaged)
    assert outcome(KernelRows, data, **reader) == outcome(PureRows, data, **reader)


@st.composite
def _nearly_records(draw: st.DrawFn) -> tuple[int, bytes]:
    """Records whose numbers are right, or at an edge, or longer than they need to be."""
    records = bytearray()
    count = draw(st.integers(1, 3))
    for delta in range(count):
        body = bytearray(draw(st.sampled_from((b"\0", b"\0", b""))))
        body += draw(_numbers(0, -5, 2**63 - 1, -(2**63)))
        body += draw(_numbers(delta, delta, delta, 2**31 - 1, -1))
        for _ in range(2):
            body += draw(_fields)
        headers = draw(st.lists(st.tuples(_header_keys, _fields), max_size=2))
        body += draw(_numbers(len(headers), len(headers), len(headers), 65_537, -1))
        body += b"".join(key + value for key, value in headers)
        body += bytes(draw(st.sampled_from((0, 0, 0, 0, 1))))
        records += draw(_numbers(len(body), len(body), len(body), len(body) - 1, 2**31 - 1, -1))
        records += body
    records += bytes(draw(st.sampled_from((0, 0, 0, 0, 3))))
    return max(0, count + draw(st.sampled_from((0, 0, 0, 0, 1, -1)))), bytes(records)


def _number(value: int) -> bytes:
    out = bytearray()
    varints.write(out, value)
    return bytes(out)


def _longer(number: bytes) -> bytes:
    return number[:-1] + bytes((number[-1] | 0x80,)) + b"\0"


def _numbers(*values: int) -> st.SearchStrategy[bytes]:
    """One of these, seldom in a form with a byte too many."""
    return st.tuples(st.sampled_from(values), st.integers(0, 15)).map(
        lambda drawn: _number(drawn[0]) if drawn[1] else _longer(_number(drawn[0]))
    )


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


_fields = st.one_of(
    st.just(b"\x01"),
    st.sampled_from((0, 1, 63, 64, 200)).map(lambda size: _sized(b"x" * size)),
    _numbers(-1, -2, 1, 2**31 - 1),
)
_header_keys = st.one_of(
    st.sampled_from((b"", b"h", "grün".encode(), b"\xff\xc3", b"a\xed\xa0\x80")).map(_sized),
    _fields,
)


@settings(max_examples=200, deadline=None)
@given(
    content=_nearly_records(),
    append_time_ms=st.one_of(st.none(), _times),
    base=st.tuples(st.sampled_from((0, 2**40)), _times),
)
def test_of_any_bytes_in_a_sound_batch_both_say_the_same(
    content: tuple[int, bytes], append_time_ms: int | None, base: tuple[int, int]
) -> None:
    count, records = content
    offset, base_time_ms = base
    append = append_time_ms is not None
    fields = (8 * append, 2**31 - 1, base_time_ms, append_time_ms or 0, -1, -1, -1, count)
    data = seal_batch(fields, records, base_offset=offset, leader_epoch=0)
    columns = ("offset", "value", "headers")
    for each in (COLUMNS, columns):
        found = outcome(KernelRows, data, columns=each)
        assert found == outcome(PureRows, data, columns=each)
