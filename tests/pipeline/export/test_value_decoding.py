"""Values by a schema registry: columns, dead letters exactly once, a registry that is down."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from kafka_formats.errors import InvalidRequest, NotFound, Refused, RetryLater
from pipeline.export import schema_registry
from pipeline.export.bad_records import OnError
from pipeline.export.export_plan import OffsetRange
from pipeline.export.schema_registry import RegistryAddress
from pipeline.export.value_decoding import Format, RegistryDecoding, ValueFormats
from pipeline.read.segment_slice import ReadSettings, SegmentSlice
from rsm_backends.store_config import StoreConfig
from tests.pipeline.export.export_world import FORMATS, Killed, World, read_made, segment
from tests.pipeline.export.registry_server import RegistryServer, framed
from tests.pipeline.export.serialised import (
    ORDER_V1,
    ORDER_V2,
    avro,
    order_descriptor,
    payment_descriptor,
    protobuf_order,
    protobuf_refund,
)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


def decoding(
    registry: RegistryServer, on_error: OnError = "fail", value: Format = "avro"
) -> RegistryDecoding:
    wanted = ValueFormats(registry=RegistryAddress(registry.url), value=value)
    found = RegistryDecoding.of(wanted, on_error, ("orders",))
    assert found is not None
    return found


def batch_of(*values: bytes | None) -> pa.RecordBatch:
    part = SegmentSlice(segment(0, 99), 0, len(values) - 1)
    (first, *rest) = read_made([part], {}, ReadSettings())
    whole = pa.Table.from_batches([first, *rest]).combine_chunks().to_batches()[0]
    return whole.set_column(1, "value", pa.array(list(values), pa.binary()))


def values_of(found: RegistryDecoding, *values: bytes | None) -> list[object]:
    good = found.start()(batch_of(*values)).good
    assert good is not None
    return list(good.column("value").to_pylist())


def test_avro_of_any_version_comes_out_as_the_reader_has_it(registry: RegistryServer) -> None:
    first = registry.add("orders-value", "AVRO", json.dumps(ORDER_V1))
    second = registry.add("orders-value", "AVRO", json.dumps(ORDER_V2))
    placed = datetime(2026, 1, 1, tzinfo=UTC)
    old = {"id": 1, "amount": Decimal("1.25"), "placed": placed}
    new = {**old, "id": 2, "tags": ["a", "b"], "note": "n", "either": 7}
    found = values_of(
        decoding(registry),
        framed(first, avro(ORDER_V1, old)),
        framed(second, avro(ORDER_V2, new)),
        None,
    )
    assert found == [
        {**old, "tags": [], "note": None, "either": None},
        {**new, "either": "7"},
        None,
    ]


def test_json_objects_become_structs_and_the_rest_text(registry: RegistryServer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
            "any": {},
        },
        "definitions": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    }
    number = registry.add("orders-value", "JSON", json.dumps(schema))
    value = {"id": 1, "price": 2.5, "lines": [{"sku": "x"}], "any": {"b": [1]}, "more": True}
    found = values_of(decoding(registry, value="json"), framed(number, json.dumps(value).encode()))
    assert found == [{"id": 1, "price": 2.5, "lines": [{"sku": "x"}], "any": '{"b": [1]}'}]


@pytest.mark.parametrize(
    ("written_as", "read_as", "values", "found"),
    [
        ("number", "integer", [1, 2.0, 1.5, 2**60], [1, 2, None, 2**60]),
        ("string", "integer", ["12"], [None]),
        ("boolean", "integer", [True], [None]),
        ("boolean", "number", [True], [None]),
        ("string", "boolean", ["false", ""], [None, None]),
        ("integer", "boolean", [0], [None]),
        ("integer", "string", [5], ["5"]),
        ("object", "string", [{"a": None}], ['{"a": null}']),
        ("string", "array", ["abc"], [None]),
        ("object", "array", [{"a": 1}], [None]),
    ],
)
def test_json_of_another_version_is_never_changed_to_fit_the_column(
    registry: RegistryServer,
    written_as: str,
    read_as: str,
    values: list[object],
    found: list[object],
) -> None:
    """A record is validated by the schema that it was written with. None here: a bad record."""
    old = registry.add(
        "orders-value", "JSON", json.dumps({"properties": {"x": {"type": written_as}}})
    )
    column = {"type": read_as, **({"items": {"type": "string"}} if read_as == "array" else {})}
    now = {"type": "object", "properties": {"x": column}}
    registry.add("orders-value", "JSON", json.dumps(now))
    given = [framed(old, json.dumps({"x": value}).encode()) for value in values]
    told = decoding(registry, "dead-letter", "json").start()(batch_of(*given))
    assert told.good is not None
    good = [each["x"] for each in told.good.column("value").to_pylist()]
    assert good == [each for each in found if each is not None]
    dead = [] if told.dead is None else told.dead.column("offset").to_pylist()
    assert dead == [at for at, each in enumerate(found) if each is None]


def test_a_logical_type_of_avro_counts_only_on_its_own_type(registry: RegistryServer) -> None:
    """Readers of records ignore any other, which would be a time of another unit."""
    types = {"int": "timestamp-millis", "long": "time-millis"}
    fields = [
        {"name": name, "type": {"type": name, "logicalType": logical}}
        for name, logical in types.items()
    ]
    schema = {"type": "record", "name": "Times", "fields": fields}
    number = registry.add("orders-value", "AVRO", json.dumps(schema))
    value = {"int": 1_000, "long": 1_000}
    assert values_of(decoding(registry), framed(number, avro(schema, value))) == [value]


def test_protobuf_messages_become_structs(registry: RegistryServer) -> None:
    number = registry.add("orders-value", "PROTOBUF", "unused", order_descriptor())
    found = values_of(
        decoding(registry, value="protobuf"),
        framed(number, protobuf_order(id=7, tags=["a"])),
        framed(number, protobuf_order(id=8, line={"raw": b"r"})),
    )
    assert found == [
        {"id": 7, "tags": ["a"], "line": None},
        {"id": 8, "tags": [], "line": {"raw": b"r"}},
    ]


def test_another_protobuf_message_than_the_columns_is_a_bad_record(
    registry: RegistryServer,
) -> None:
    number = registry.add("orders-value", "PROTOBUF", "unused", order_descriptor())
    other = registry.add("payments-value", "PROTOBUF", "unused", payment_descriptor())
    order = framed(number, protobuf_order(id=7))
    refund = framed(number, protobuf_refund(order=7, why="broken"))
    payment = framed(other, protobuf_order(id=999))  # the first message of its own file
    with pytest.raises(InvalidRequest, match=r"offset 1 .* shop\.Refund, not shop\.Order"):
        decoding(registry, value="protobuf").start()(batch_of(order, refund))
    found = decoding(registry, "dead-letter", "protobuf").start()(batch_of(refund, order, payment))
    assert found.good is not None
    assert found.good.column("offset").to_pylist() == [1]
    assert found.dead is not None
    assert found.dead.column("offset").to_pylist() == [0, 2]


def test_a_record_whose_own_protobuf_file_has_the_message_elsewhere_is_read(
    registry: RegistryServer,
) -> None:
    first = registry.add("orders-value", "PROTOBUF", "unused", order_descriptor(refund_first=True))
    second = registry.add("orders-value", "PROTOBUF", "unused", order_descriptor())
    order = framed(first, protobuf_order(id=7, second=True))
    refund = framed(first, protobuf_order(id=8))  # the first message of the first file
    newer = framed(second, protobuf_order(id=9))
    found = decoding(registry, "dead-letter", "protobuf").start()(batch_of(order, refund, newer))
    assert found.good is not None
    assert [each["id"] for each in found.good.column("value").to_pylist()] == [7, 9]
    assert found.dead is not None
    assert found.dead.column("offset").to_pylist() == [1]


def test_a_bad_record_fails_the_run_by_its_offset_unless_told_otherwise(
    registry: RegistryServer,
) -> None:
    number = registry.add("orders-value", "AVRO", json.dumps("long"))
    good = framed(number, avro("long", 5))
    for bad in (b"", b"\x01nonsense", framed(number, b""), framed(99, avro("long", 5))):
        with pytest.raises(InvalidRequest, match="offset 1 of orders-0"):
            decoding(registry).start()(batch_of(good, bad))
        skipped = decoding(registry, "skip").start()(batch_of(good, bad, good))
        assert skipped.skipped == 1
        assert skipped.good is not None
        assert skipped.good.column("offset").to_pylist() == [0, 2]
        found = decoding(registry, "dead-letter").start()(batch_of(good, bad))
        assert found.dead is not None
        (dead,) = found.dead.to_pylist()
        assert (dead["offset"], dead["value"]) == (1, bad)
        assert "value: " in dead["error"]


def test_a_registry_that_is_down_or_refuses_us_is_no_bad_record(registry: RegistryServer) -> None:
    number = registry.add("orders-value", "AVRO", json.dumps("long"))
    found = decoding(registry, "skip")
    data = framed(number, avro("long", 5))
    registry.status = 401
    with pytest.raises(Refused, match="STRANDLINE_REGISTRY_USER=NAME:PASSWORD"):
        found.start()(batch_of(data))
    with pytest.raises(Refused):
        decoding(registry)
    gone = replace(found, registry=RegistryAddress("http://127.0.0.1:1"))
    with pytest.raises(RetryLater, match="does not answer"):
        gone.start()(batch_of(data))


PAGE = b"<html><body>Sign in</body></html>"


def told(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d Told\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, len(body)) + body


@pytest.mark.parametrize(
    "said",
    [
        None, b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n", told(200, b""),
        told(200, PAGE), told(200, b"[]"), told(200, b'{"schema": 5}'), told(404, PAGE),
        told(404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), told(407, PAGE),
        told(302, b""), told(500, PAGE),
    ],
)  # fmt: skip
def test_a_registry_that_hangs_or_breaks_off_is_no_bad_record(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch, said: bytes | None
) -> None:
    number = registry.add("orders-value", "AVRO", json.dumps("long"))
    found = decoding(registry, "skip")
    monkeypatch.setattr(schema_registry, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(schema_registry, "RETRIES_MAX", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while said is not None:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1_000)
                    connection.sendall(said)

        Thread(target=answer, daemon=True).start()
        there = RegistryAddress(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(RetryLater, match="does not answer"):
            replace(found, registry=there).start()(batch_of(framed(number, avro("long", 5))))
        server.shutdown(socket.SHUT_RDWR)


def test_a_registry_on_this_machine_is_asked_directly(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    registry.add("orders-value", "AVRO", '"string"')
    assert decoding(registry) is not None


def test_a_subject_that_is_unknown_or_of_another_kind_is_named(registry: RegistryServer) -> None:
    with pytest.raises(NotFound, match="orders-value"):
        decoding(registry)
    registry.add("orders-value", "JSON", "{}")
    with pytest.raises(InvalidRequest, match="is JSON, not AVRO"):
        decoding(registry)
    registry.add("orders-value", "AVRO", json.dumps(
        {"type": "record", "name": "Tree", "fields": [{"name": "left", "type": "Tree"}]}
    ))  # fmt: skip
    with pytest.raises(InvalidRequest, match="contains itself"):
        decoding(registry)


def read_longs(
    slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Every fourth value is none that the registry knows."""
    for batch in read_made(slices, stores, settings):
        offsets = batch.column("offset").to_pylist()
        values = [framed(1 if at % 4 else 99, avro("long", at)) for at in offsets]
        yield batch.set_column(1, "value", pa.array(values, pa.binary()))


@pytest.mark.parametrize("format", FORMATS)
def test_dead_letters_are_exactly_once_too_wherever_a_run_is_killed(
    format: str, registry: RegistryServer, tmp_path: Path
) -> None:
    registry.add("orders-value", "AVRO", json.dumps("long"))
    for step in ("files", "commit", "dead-letters"):
        root = tmp_path / step
        root.mkdir()
        world = World(
            format,
            root,
            segments=[segment(0, 9), segment(10, 14)],
            decoding=decoding(registry, "dead-letter"),
            value_type=pa.int64(),
            read=read_longs,
        )
        with pytest.raises(Killed):
            world.run(kill_behind=step)
        world.run()
        world.run()
        assert world.offsets() == [at for at in range(15) if at % 4], step
        assert world.offsets("_dead_letters") == [at for at in range(15) if not at % 4], step
        assert world.data_files() == world.named_files(), step
        dead_files = world.data_files("_dead_letters")
        assert dead_files == world.named_files("_dead_letters"), step
        assert all("not found" in str(row["error"]) for row in world.rows("_dead_letters"))


@pytest.mark.parametrize("format", FORMATS)
def test_a_registry_that_goes_down_while_tasks_run_leaves_the_table_as_it_was(
    format: str, registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are no dead letters because of it."""
    monkeypatch.setattr(schema_registry, "RETRIES_MAX", 0)  # each waits a second
    registry.add("orders-value", "AVRO", json.dumps("long"))
    world = World(
        format,
        tmp_path,
        segments=[segment(0, 9), segment(10, 19)],
        decoding=decoding(registry, "dead-letter"),
        value_type=pa.int64(),
        read=read_longs,
        task_bytes=1,
    )
    world.run(OffsetRange(0, 4))
    before = world.named_files()
    calls = iter(range(1))

    def goes_down(
        slices: Iterable[SegmentSlice], stores: Mapping[str, StoreConfig], settings: ReadSettings
    ) -> Iterator[pa.RecordBatch]:
        if next(calls, None) is None:
            registry.status = 503  # the first task is through
        yield from read_longs(slices, stores, settings)

    world.read = goes_down
    with pytest.raises(RetryLater, match=r"does not answer.* Nothing was committed"):
        world.run()
    assert world.named_files() == before
    assert len(world.data_files()) > len(before)
    assert (world.offsets(), world.offsets("_dead_letters")) == ([1, 2, 3], [0, 4])
    registry.status, world.read = None, read_longs
    assert world.run().done.commits == [2]
    assert world.offsets() == [at for at in range(20) if at % 4]
    assert world.offsets("_dead_letters") == [at for at in range(20) if not at % 4]
    assert world.data_files() == world.named_files()
