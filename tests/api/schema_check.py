"""Holds JSON against a schema of the OpenAPI document, with the keywords that the document uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "boolean": (bool,),
    "number": (int, float), "null": (type(None),),
}  # fmt: skip
_UNCHECKED = frozenset({"title", "description", "examples", "default", "format"})
_CHECKED = frozenset(
    {
        "$ref", "anyOf", "type", "enum", "const", "properties", "required", "items",
        "additionalProperties", "minimum", "maximum", "minItems", "maxItems", "maxLength",
    }
)  # fmt: skip


def complaints(value: Any, schema: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """What of `value` the schema does not allow; empty when all is well."""
    return list(_complaints(value, schema, document, "$"))


def _complaints(
    value: Any, schema: Mapping[str, Any], document: Mapping[str, Any], at: str
) -> list[str]:
    assert set(schema) <= _CHECKED | _UNCHECKED, set(schema) - _CHECKED - _UNCHECKED
    if "$ref" in schema:
        target = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return _complaints(value, target, document, at)
    if "anyOf" in schema:
        tried = [_complaints(value, option, document, at) for option in schema["anyOf"]]
        return [] if any(not found for found in tried) else [f"{at}: none of {tried}"]
    found = _of_scalar(value, schema, at)
    if found:
        return found
    if isinstance(value, list):
        items = schema.get("items", {})
        return [
            each
            for number, item in enumerate(value)
            for each in _complaints(item, items, document, f"{at}[{number}]")
        ]
    return _of_object(value, schema, document, at) if isinstance(value, dict) else []


def _of_scalar(value: Any, schema: Mapping[str, Any], at: str) -> list[str]:
    kind = schema.get("type")
    is_flag = isinstance(value, bool) and kind in ("integer", "number")
    if kind is not None and (is_flag or not isinstance(value, _TYPES[kind])):
        return [f"{at}: {value!r} is no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is not in {schema['enum']}"]
    if "const" in schema and value != schema["const"]:
        return [f"{at}: {value!r} is not {schema['const']!r}"]
    if isinstance(value, int) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
    ):
        return [f"{at}: {value} is out of bounds"]
    return []


def _of_object(
    value: dict[str, Any], schema: Mapping[str, Any], document: Mapping[str, Any], at: str
) -> list[str]:
    properties = schema.get("properties", {})
    found = [f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value]
    more = schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name in properties:
            found += _complaints(inner, properties[name], document, f"{at}.{name}")
        elif more is False:
            found.append(f"{at}: {name} is not declared")
        elif isinstance(more, dict):
            found += _complaints(inner, more, document, f"{at}.{name}")
    return found
