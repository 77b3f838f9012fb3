"""Payloads as producers' serialisers write them, behind the schema's id."""

from __future__ import annotations

import base64
import io
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIRST_MESSAGE = b"\x00"
"""The index list [0], as serialisers shorten it."""
_SECOND_MESSAGE = b"\x02\x02"
"""The index list [1]: its length and its items, as zigzag varints."""

ORDER_V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                    "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
ORDER_V2 = {
    **ORDER_V1,
    "fields": [
        *ORDER_V1["fields"],
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "either", "type": ["null", "int", "string"], "default": None},
    ],
}


def avro(schema: Any, value: Any) -> bytes:
    """A value by this schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def order_descriptor(*, refund_first: bool = False) -> str:
    """The Protobuf file of message shop.Order, as a registry gives it."""
    return base64.b64encode(_order_file(refund_first=refund_first)).decode()


def protobuf_order(*, second: bool = False, **fields: Any) -> bytes:
    """A message shop.Order: `id`, repeated `tags`, `line` of one field `raw`; `second` of a file
    with the refund first.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_order_file())
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    index = _SECOND_MESSAGE if second else _FIRST_MESSAGE
    return index + bytes(order(**fields).SerializeToString())


def protobuf_refund(**fields: Any) -> bytes:
    """A message shop.Refund, the second one of the file: `order`, `why`."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_order_file())
    refund = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Refund"))
    return _SECOND_MESSAGE + bytes(refund(**fields).SerializeToString())


def payment_descriptor() -> str:
    """A Protobuf file with the message pay.Payment of `cents`, whose bytes parse as an order."""
    file = descriptor_pb2.FileDescriptorProto(name="pay.proto", package="pay", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="Payment").field.add(
        name="cents", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL
    )
    return base64.b64encode(file.SerializeToString()).decode()


def _order_file(*, refund_first: bool = False) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="tags", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    line = message.nested_type.add(name="Line")
    line.field.add(name="raw", number=1, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    message.field.add(
        name="line", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line",
        label=kinds.LABEL_OPTIONAL,
    )  # fmt: skip
    refund = file.message_type.add(name="Refund")
    refund.field.add(name="order", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    refund.field.add(name="why", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    if refund_first:
        messages = [refund, message]
        swapped = descriptor_pb2.FileDescriptorProto(
            name=file.name, package=file.package, syntax=file.syntax, message_type=messages
        )
        return bytes(swapped.SerializeToString())
    return bytes(file.SerializeToString())
