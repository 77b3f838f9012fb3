"""The entries of a list's page, without botocore's general reading of structures, and read once.

That one looks for each of the ten fields which an entry may have, by rules that it works out anew
for each entry. Here the four that are read are taken from the same document. An entry that has
them not exactly once each goes the general way.

Before, the library parses the whole page to see whether it is an error that came with status 200. A
page's first tag tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from aiobotocore.parsers import AioResponseParserFactory, AioRestXMLParser
from botocore.handlers import _handle_200_error  # type: ignore[attr-defined]  # its stubs lack it
from botocore.parsers import ResponseParser

from rsm_backends.s3_timestamps import parsed_timestamp

_ENTRY = "Object"
"""What the library calls an entry's structure."""
_LIST = "ListObjectsV2"
_PAGE = re.compile(rb"\s*(?:<\?xml[^>]*\?>\s*)?<ListBucketResult[\s>]")
_ANSWERED = "before-parse.s3.*"
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


def read_pages_once(client: Any) -> None:
    """Of a client's answers only what is no page of a list is looked through for an error."""
    client.meta.events.unregister(_ANSWERED, _handle_200_error)
    client.meta.events.register_first(_ANSWERED, _find_error)


def _find_error(operation_model: Any, response_dict: Any, **more: Any) -> None:
    if operation_model.name != _LIST or _PAGE.match(response_dict["body"]) is None:
        _handle_200_error(operation_model, response_dict, **more)
