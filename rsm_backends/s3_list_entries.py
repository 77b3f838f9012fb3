"""The entries of a list's page, without botocore's general reading of structures.

That one looks for each of the ten fields which an entry may have, by rules that it works out anew
for each entry. Here the four that are read are taken from the same document. An entry that has
them not exactly once each goes the general way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from aiobotocore.parsers import AioResponseParserFactory, AioRestXMLParser
from botocore.parsers import ResponseParser

from rsm_backends.s3_timestamps import parsed_timestamp

_ENTRY = "Object"
"""What the library calls an entry's structure."""
_FIELDS = frozenset(("Key", "Size", "LastModified", "ETag"))


class _Element(Protocol):
    tag: str
    text: str | None


def listed_entry(node: Iterable[_Element]) -> dict[str, Any] | None:
    """The four fields as the client answers them; None: go the general way."""
    found: dict[str, Any] = {}
    for child in node:
        name = child.tag.rpartition("}")[2]  # behind the namespace
        if name in _FIELDS:
            if name in found:
                return None
            found[name] = child.text or ""
    if len(found) != len(_FIELDS):
        return None
    found["Size"] = int(found["Size"])
    found["LastModified"] = parsed_timestamp(found["LastModified"])
    return found


class QuickParsers(AioResponseParserFactory):
    """Makes a session's parsers: S3's answers go to the one below."""

    def __init__(self) -> None:
        super().__init__()
        self.set_parser_defaults(timestamp_parser=parsed_timestamp)

    def create_parser(self, protocol_name: str) -> ResponseParser:
        if protocol_name == "rest-xml":
            parser: ResponseParser = _QuickParser(timestamp_parser=parsed_timestamp)
            return parser
        return super().create_parser(protocol_name)


class _QuickParser(AioRestXMLParser):
    def _handle_structure(self, shape: Any, node: Any) -> Any:
        if shape.name == _ENTRY:
            entry = listed_entry(node)
            if entry is not None:
                return entry
        return super()._handle_structure(shape, node)  # type: ignore[misc]  # its stubs lack it
