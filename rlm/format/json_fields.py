"""Typed access to the fields of a JSON object that another program may have written."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.errors import CorruptData

_INT64_MAX = 2**63 - 1
_SHOWN_CHARACTERS_MAX = 200


class Fields:
    """A parsed JSON object. CorruptData names a field that is missing or of the wrong type."""

    def __init__(self, value: object, source: str, path: str) -> None:
        self._source = source
        self._path = path
        if not isinstance(value, dict):
            raise self.wrong("", "is not a JSON object")
        self._value: dict[str, object] = value

    def names(self) -> Iterable[str]:
        return self._value.keys()

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "is missing or not a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """A string, or None when absent or null."""
        return None if self._value.get(name) is None else self.text(name)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty when absent."""
        value = self._value.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(name, "is not a list of strings")
        return tuple(value)

    def integer(self, name: str, *, minimum: int = 0, maximum: int = _INT64_MAX) -> int:
        """An integer in [minimum, maximum]."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "is missing or not an integer")
        if not minimum <= value <= maximum:
            raise self.wrong(name, f"is not between {minimum} and {maximum}")
        return value

    def boolean(self, name: str) -> bool:
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "is missing or neither true nor false")
        return value

    def optional_boolean(self, name: str, *, default: bool) -> bool:
        """True, false, or `default` when absent or null."""
        return default if self._value.get(name) is None else self.boolean(name)

    def object(self, name: str) -> Fields:
        return Fields(self._value.get(name), self._source, f"{self._path}{name}.")

    def optional_object(self, name: str) -> Fields | None:
        """An object, or None when absent or null."""
        return None if self._value.get(name) is None else self.object(name)

    def wrong(self, name: str, why: str) -> CorruptData:
        field = f"{self._path}{name}".rstrip(".") or "the document"
        if len(field) > _SHOWN_CHARACTERS_MAX or not field.isprintable():
            field = repr(field[:_SHOWN_CHARACTERS_MAX])
        return CorruptData(f"{field} {why}", source=self._source, position=0)
