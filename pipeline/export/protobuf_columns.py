"""Protobuf messages as Arrow types. Pure, apart from the deserialiser passed in.

The registry returns the descriptors of a schema's file, so nothing has to be compiled. The first
message of the file is the record's type, the default of Confluent's serialisers.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from kafka_formats.errors import InvalidRequest
from pipeline.export.conversions import Convert

if TYPE_CHECKING:
    from pipeline.export.schema_registry import Deserialise, RegisteredText, Registry

_WELL_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)
_TIMESTAMP = "google.protobuf.Timestamp"
_SCALARS = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),  # no table format has unsigned numbers
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}


@dataclass(frozen=True)
class ProtobufColumn:
    """A column for a Protobuf schema. Enums become text; fields without a value become NULL if the
    schema distinguishes them from the default.
    """

    message: Any
    arrow_type: pa.DataType
    convert: Convert

    @classmethod
    def of(cls, schema: RegisteredText) -> Self:
        """The column for a schema; InvalidRequest if no column can hold it."""
        pool = descriptor_pool.DescriptorPool()
        try:
            for module in _WELL_KNOWN:
                pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
            for name, text in schema.references:
                _add(pool, name, text)
            file = _add(pool, "default.proto", schema.text)
        except (DecodeError, TypeError, ValueError, binascii.Error) as error:
            raise InvalidRequest(
                f"subject {schema.subject} has no readable Protobuf descriptor: {error}; export it "
                "as binary"
            ) from error
        if not file.message_types_by_name:
            raise InvalidRequest(f"subject {schema.subject} has no message: export it as binary")
        descriptor = next(iter(file.message_types_by_name.values()))
        message = message_factory.GetMessageClass(descriptor)
        return cls(message, *_message(descriptor, (), schema.subject))

    def deserialiser(self, registry: Registry, name: str) -> Deserialise:
        """A function from bytes to a value for an array of `arrow_type`."""
        decode, convert = registry.protobuf(self.message, name), self.convert
        return lambda data, topic: convert(decode(data, topic))


def _add(pool: Any, name: str, text: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    file.name = name
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(name)


def _message(
    descriptor: Descriptor, above: tuple[str, ...], subject: str
) -> tuple[pa.DataType, Convert]:
    if descriptor.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC"), lambda value: value.ToDatetime(tzinfo=UTC)
    if descriptor.full_name in above or not descriptor.fields:
        why = "contains itself" if descriptor.fields else "has no fields"
        raise InvalidRequest(
            f"no column can be made of subject {subject}: message {descriptor.full_name} {why}; "
            "export it as binary"
        )
    fields = {
        field.name: _field(field, (*above, descriptor.full_name), subject)
        for field in descriptor.fields
    }
    presence = {field.name: field.has_presence for field in descriptor.fields}

    def convert(value: Any) -> Any:
        return {
            name: None if presence[name] and not value.HasField(name)
            else each(getattr(value, name))
            for name, (_, each) in fields.items()
        }  # fmt: skip

    return pa.struct([pa.field(name, kind) for name, (kind, _) in fields.items()]), convert


def _field(
    field: FieldDescriptor, above: tuple[str, ...], subject: str
) -> tuple[pa.DataType, Convert]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, _ = _one(inner.fields_by_name["key"], above, subject)
        kind, convert = _one(inner.fields_by_name["value"], above, subject)
        return pa.map_(key, kind), lambda value: [(k, convert(value[k])) for k in value]
    kind, convert = _one(field, above, subject)
    if field.is_repeated:
        return pa.list_(pa.field("element", kind)), lambda value: [convert(each) for each in value]
    return kind, convert


def _one(
    field: FieldDescriptor, above: tuple[str, ...], subject: str
) -> tuple[pa.DataType, Convert]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        return _message(field.message_type, above, subject)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {each.number: each.name for each in field.enum_type.values}
        return pa.string(), lambda value: names.get(value, str(value))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        is_text = field.type == FieldDescriptor.TYPE_STRING
        return (pa.string() if is_text else pa.binary()), lambda value: value
    return _SCALARS[field.cpp_type], lambda value: value
