"""JSON schemas as Arrow types. Pure, apart from the deserialiser passed in.

A JSON schema restricts values and need not name every field: objects with `properties`, arrays with
`items` and plain types become columns; a value of several possible types stays JSON text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from kafka_formats.errors import InvalidRequest
from pipeline.export.json_text import json_text
from pipeline.export.struct_column import Convert, struct_of

if TYPE_CHECKING:
    from pipeline.export.schema_registry import Deserialise, RegisteredText, Registry

DEPTH_MAX = 20

_PLAIN: dict[str, tuple[pa.DataType, Convert]] = {
    "string": (pa.string(), str),
    "integer": (pa.int64(), int),
    "number": (pa.float64(), float),
    "boolean": (pa.bool_(), bool),
}


@dataclass(frozen=True)
class JsonColumn:
    """A column for a JSON schema."""

    arrow_type: pa.DataType
    convert: Convert

    @classmethod
    def of(cls, schema: RegisteredText) -> Self:
        """The column for a schema; InvalidRequest if the text is not JSON."""
        try:
            parsed = json.loads(schema.text)
        except ValueError:
            raise InvalidRequest(
                f"subject {schema.subject} is not a JSON schema: export it as binary"
            ) from None
        return cls(*_type_of(parsed, parsed, 0))

    def deserialiser(self, registry: Registry, name: str) -> Deserialise:
        """A function from bytes to a value for an array of `arrow_type`."""
        decode, convert = registry.json(name), self.convert

        def deserialise(data: bytes, topic: str) -> Any:
            found = decode(data, topic)
            return None if found is None else convert(found)

        return deserialise


def _type_of(schema: Any, root: Any, depth: int) -> tuple[pa.DataType, Convert]:
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return pa.string(), json_text
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    for union in ("oneOf", "anyOf"):
        others = [each for each in schema.get(union, ()) if each != {"type": "null"}]
        if kind is None and len(others) == 1:
            return _type_of(others[0], root, depth + 1)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "array" and isinstance(schema.get("items"), dict):
        element, convert = _type_of(schema["items"], root, depth + 1)
        return (
            pa.list_(pa.field("element", element)),
            lambda value: [None if each is None else convert(each) for each in value],
        )
    if kind == "object" and schema.get("properties"):
        return _object(schema["properties"], root, depth)
    return pa.string(), json_text


def _object(properties: dict[str, Any], root: Any, depth: int) -> tuple[pa.DataType, Convert]:
    return struct_of({name: _type_of(each, root, depth + 1) for name, each in properties.items()})


def _resolved(schema: Any, root: Any) -> Any:
    """Follow `$ref` within the schema; one that leads outside, or in a circle, stays unresolved."""
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, dict) or not str(schema.get("$ref", "")).startswith("#/"):
            break
        found = root
        for part in schema["$ref"][2:].split("/"):
            found = found.get(part) if isinstance(found, dict) else None
        schema = found
    return schema
