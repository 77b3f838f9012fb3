"""Decodes keys and values with a schema registry into columns, and sorts out bad records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pyarrow as pa

from kafka_formats.errors import InvalidRequest, StrandlineError
from pipeline.export.avro_columns import AvroColumn
from pipeline.export.bad_records import OnError, parted, told
from pipeline.export.export_task import Decode, Decoded
from pipeline.export.json_columns import JsonColumn
from pipeline.export.protobuf_columns import ProtobufColumn
from pipeline.export.schema_registry import (
    Deserialise,
    RegisteredText,
    Registry,
    RegistryAddress,
)
from pipeline.export.table_schema import record_schema

Format = Literal["binary", "avro", "json", "protobuf"]
Field = Literal["key", "value"]
FIELDS: tuple[Field, ...] = get_args(Field)

_DO_NOT_FIT = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)

COLUMN_KINDS: Mapping[str, type[AvroColumn | JsonColumn | ProtobufColumn]] = {
    "avro": AvroColumn,
    "json": JsonColumn,
    "protobuf": ProtobufColumn,
}


@dataclass(frozen=True, kw_only=True)
class ValueFormats:
    """The formats of keys and values; `binary` leaves them as they are. Without a subject it is
    that of the one exported topic (`orders-value`); without a version it is the latest.
    """

    key: Format = "binary"
    value: Format = "binary"
    registry: RegistryAddress | None = None
    subjects: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)

    def decoded(self) -> dict[Field, Format]:
        formats: dict[Field, Format] = {"key": self.key, "value": self.value}
        return {name: kind for name, kind in formats.items() if kind != "binary"}

    def check(self) -> None:
        """Raise InvalidRequest for formats that need a registry, without one."""
        if self.decoded() and self.registry is None:
            raise InvalidRequest(
                "is needed for --value-format and --key-format", field="--registry"
            )


@dataclass(frozen=True)
class RegistryDecoding:
    """The decoding with the schemas of the columns, as the driver found them; picklable. The task
    looks up the schemas that records were written with, by the id in front of each.
    """

    registry: RegistryAddress
    formats: Mapping[Field, Format]
    schemas: Mapping[Field, RegisteredText]
    on_error: OnError

    @classmethod
    def of(
        cls, formats: ValueFormats, on_error: OnError, topics: tuple[str, ...]
    ) -> RegistryDecoding | None:
        """The decoding, with schemas from the registry; None if no field is decoded. RetryLater if
        the registry does not answer.
        """
        formats.check()
        wanted = formats.decoded()
        if not wanted or formats.registry is None:
            return None
        with Registry(formats.registry) as registry:
            schemas = {
                name: registry.schema(
                    _subject(name, formats, topics), formats.versions.get(name), kind
                )
                for name, kind in wanted.items()
            }
        found = cls(formats.registry, wanted, schemas, on_error)
        found.types()  # a schema that no column can hold is refused before anything is written
        return found

    def types(self) -> dict[Field, pa.DataType]:
        """The types of the decoded columns."""
        return {
            name: COLUMN_KINDS[kind].of(self.schemas[name]).arrow_type
            for name, kind in self.formats.items()
        }

    def start(self) -> Decode:
        registry = Registry(self.registry)
        columns = {
            name: COLUMN_KINDS[kind].of(self.schemas[name]).deserialiser(registry, name)
            for name, kind in self.formats.items()
        }
        types = self.types()
        schema = record_schema(types.get("key"), types.get("value"))
        return _Decoder(columns, schema, self.on_error)


def _subject(name: Field, formats: ValueFormats, topics: tuple[str, ...]) -> str:
    if name in formats.subjects:
        return formats.subjects[name]
    if len(topics) != 1:
        raise InvalidRequest(
            "is needed unless exactly one topic is exported by its name: one table has one schema",
            field=f"--{name}-subject",
        )
    return f"{topics[0]}-{name}"


@dataclass(frozen=True)
class _Decoder:
    """Decodes batches and keeps the order of records."""

    columns: Mapping[Field, Deserialise]
    schema: pa.Schema
    on_error: OnError

    def __call__(self, batch: pa.RecordBatch) -> Decoded:
        errors: dict[int, str] = {}
        found = {
            name: self._column(batch, name, decode, errors) for name, decode in self.columns.items()
        }
        good = pa.array([row not in errors for row in range(len(batch))])
        arrays = [found.get(each.name, batch.column(each.name)) for each in self.schema]
        kept = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if not errors:
            return Decoded(kept)
        return parted(batch, kept.filter(good), errors, self.on_error)

    def _column(
        self, batch: pa.RecordBatch, name: Field, decode: Deserialise, errors: dict[int, str]
    ) -> pa.Array:
        """The decoded column; NULL in rows with an error, which `errors` gets."""
        kind = self.schema.field(name).type
        values: list[Any] = []
        topics = batch.column("topic").to_pylist()
        for row, data in enumerate(batch.column(name).to_pylist()):
            value = None
            try:
                value = None if data is None else decode(data, topics[row])
            except StrandlineError:
                raise  # the registry, not the record
            except Exception as error:  # noqa: BLE001  deserialisers raise what their parsers do
                errors[row] = self._told(batch, row, name, error)
            values.append(value)
        try:
            return pa.array(values, kind)
        except _DO_NOT_FIT:
            pass  # a value is out of the column's range: trying each one finds it
        for row, value in enumerate(values):
            try:
                pa.array([value], kind)
            except _DO_NOT_FIT as error:
                errors[row] = self._told(batch, row, name, error)
                values[row] = None
        return pa.array(values, kind)

    def _told(self, batch: pa.RecordBatch, row: int, name: Field, error: Exception) -> str:
        return told(batch, row, f"{name}: {type(error).__name__}: {error}", self.on_error)
