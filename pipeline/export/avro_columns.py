"""Avro schemas as Arrow types. Pure, apart from the deserialiser passed in.

Source: Avro 1.12 specification (primitive, complex and logical types).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import pyarrow as pa

from kafka_formats.errors import InvalidRequest
from pipeline.export.conversions import Convert, json_text, struct_of

if TYPE_CHECKING:
    from pipeline.export.schema_registry import Deserialise, RegisteredText, Registry

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
"""Columns by the type below. A logical type of a different type is ignored, as by readers of
records.
"""


@dataclass(frozen=True)
class AvroColumn:
    """A column for an Avro schema: records become structs; unions of more than NULL and one other
    type become JSON text.
    """

    schema: RegisteredText
    arrow_type: pa.DataType
    convert: Convert

    @classmethod
    def of(cls, schema: RegisteredText) -> Self:
        """The column for a schema; InvalidRequest if no column can hold it."""
        if schema.references:
            raise InvalidRequest(
                f"subject {schema.subject} refers to other schemas, which an export can't turn "
                "into a column yet: export it as binary"
            )
        try:
            parsed = json.loads(schema.text)
        except ValueError:
            parsed = schema.text
        return cls(schema, *_Types(schema.subject).of(parsed, ""))

    def deserialiser(self, registry: Registry, name: str) -> Deserialise:
        """A function from bytes to a value for an array of `arrow_type`."""
        decode, convert = registry.avro(self.schema.text, name), self.convert
        return lambda data, topic: convert(decode(data, topic))


class _Types:
    """Walks a schema and remembers named types by their full name."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._named: dict[str, tuple[pa.DataType, Convert] | None] = {}

    def of(self, schema: Any, namespace: str) -> tuple[pa.DataType, Convert]:
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema], _same
            return self._known(schema, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise self._refused(f"{str(schema)[:80]!r} is not an Avro schema")
        if "logicalType" in schema and (logical := _logical(schema)) is not None:
            return logical
        return self._complex(schema, namespace)

    def _complex(self, schema: dict[str, Any], namespace: str) -> tuple[pa.DataType, Convert]:
        match schema["type"]:
            case "record" | "error":
                return self._record(schema, namespace)
            case "enum":
                return self._name(schema, namespace, (pa.string(), _same))
            case "fixed":
                return self._name(schema, namespace, (pa.binary(), _same))
            case "array":
                kind, convert = self.of(schema["items"], namespace)
                return pa.list_(pa.field("element", kind)), _each(convert)
            case "map":
                kind, convert = self.of(schema["values"], namespace)
                return pa.map_(pa.string(), kind), _values(convert)
            case inner:
                return self.of(inner, namespace)

    def _record(self, schema: dict[str, Any], namespace: str) -> tuple[pa.DataType, Convert]:
        full, inner = _full_name(schema, namespace)
        self._named[full] = None
        fields = {each["name"]: self.of(each["type"], inner) for each in schema["fields"]}
        if not fields:
            raise self._refused(f"record {full} has no fields, which no table can hold")
        found = struct_of(fields)
        self._named[full] = found
        return found

    def _union(self, branches: list[Any], namespace: str) -> tuple[pa.DataType, Convert]:
        others = [each for each in branches if each not in ("null", {"type": "null"})]
        found = [self.of(each, namespace) for each in others]
        if len(found) == 1:
            kind, convert = found[0]
            return kind, lambda value: None if value is None else convert(value)
        return pa.string(), json_text

    def _name(
        self, schema: dict[str, Any], namespace: str, found: tuple[pa.DataType, Convert]
    ) -> tuple[pa.DataType, Convert]:
        self._named[_full_name(schema, namespace)[0]] = found
        return found

    def _known(self, name: str, namespace: str) -> tuple[pa.DataType, Convert]:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full not in self._named:
            raise self._refused(f"type {name} is not known")
        found = self._named[full]
        if found is None:
            raise self._refused(f"type {name} contains itself, which no table can hold")
        return found

    def _refused(self, why: str) -> InvalidRequest:
        return InvalidRequest(
            f"no column can be made of subject {self._subject}: {why}; export it as binary"
        )


def _full_name(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    name = str(schema.get("name", ""))
    inner = str(schema.get("namespace", namespace))
    if "." in name:
        return name, name.rpartition(".")[0]
    return (f"{inner}.{name}" if inner else name), inner


def _logical(schema: dict[str, Any]) -> tuple[pa.DataType, Convert] | None:
    of, kind = schema["type"], schema["logicalType"]
    if not isinstance(of, str):
        return None
    if kind == "decimal" and of in ("bytes", "fixed"):
        return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0))), _same
    if kind == "uuid" and of == "string":
        return pa.string(), lambda value: str(value) if isinstance(value, UUID) else value
    return (_LOGICAL[of, kind], _same) if (of, kind) in _LOGICAL else None


def _same(value: Any) -> Any:
    return value


def _each(convert: Convert) -> Convert:
    if convert is _same:
        return _same
    return lambda value: [None if each is None else convert(each) for each in value]


def _values(convert: Convert) -> Convert:
    return lambda value: [
        (key, None if each is None else convert(each)) for key, each in value.items()
    ]
