"""JSON schemas as Arrow types. Pure, apart from the deserialiser passed in.

A JSON schema restricts values and need not name every field: objects with `properties`, arrays with
`items` and plain types become columns; a value of several possible types stays JSON text.

The deserialiser validates a record by the schema that it was written with, which may differ from
the column's. So a value is converted only if it stays unchanged; any other makes a bad record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from kafka_formats.errors import InvalidRequest
from pipeline.export.conversions import Convert, json_text, struct_of

if TYPE_CHECKING:
    from pipeline.export.schema_registry import Deserialise, RegisteredText, Registry

DEPTH_MAX = 20
SHOWN_CHARACTERS_MAX = 80


def _text(value: Any) -> str | None:
    """Text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json_text(value)


def _integer(value: Any) -> int:
    """JSON Schema counts 1.0 among the integers."""
    number = _number(value)
    if isinstance(number, float) and not number.is_integer():
        raise ValueError(f"{number!r} is not an integer")
    return int(number)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{_shown(value)} is not a number")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{_shown(value)} is neither true nor false")
    return value


def _list(value: Any, convert: Convert) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{_shown(value)} is not an array")
    return [None if each is None else convert(each) for each in value]


def _shown(value: Any) -> str:
    return (json_text(value) or "null")[:SHOWN_CHARACTERS_MAX]


_PLAIN: dict[str, tuple[pa.DataType, Convert]] = {
    "string": (pa.string(), _text),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), lambda value: float(_number(value))),
    "boolean": (pa.bool_(), _boolean),
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
            partial(_list, convert=convert),
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
