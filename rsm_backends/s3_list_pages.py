"""A list's pages, without botocore's general way of reading them, and read once.

That one makes a tree of the page and looks in each entry for the ten fields that it may have, by
rules that it works out anew each time. But a store writes its entries in very few forms: the same
tags in the same order. A form is learnt from the first entry that has it; the others are read by
one expression, and the rest of the page the general way. A page that is unusual anywhere goes that
way as a whole.

Before, the library parses the whole page to see whether it is an error that came with status 200. A
page's first tag tells.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

from aiobotocore.parsers import AioResponseParserFactory, AioRestXMLParser
from botocore.handlers import _handle_200_error  # type: ignore[attr-defined]  # its stubs lack it
from botocore.parsers import ResponseParser, ResponseParserError

from rsm_backends.s3_forms import check_form, truth
from rsm_backends.s3_timestamps import ISO_TIME, parsed_timestamp

_LIST = "ListObjectsV2"
_PAGE_SHAPE = "ListObjectsV2Output"
_ANSWERED = "before-parse.s3.*"
_BEGIN = rb"\s*(?:<\?xml[^>]*\?>\s*)?<ListBucketResult"
_PAGE = re.compile(_BEGIN + rb"[\s>]")
_HEAD = re.compile(
    _BEGIN
    + rb"(?:\s[^<>]*)?>\s*(?:<(?!Contents[\s/>])([A-Za-z0-9]+)(?:/>|>[^<]*</\1>)\s*)*"
)  # fmt: skip
"""What may stand before the first entry: elements without others in them. So entries are the page's
own, and not somebody else's below.
"""

_ENTRY, _ENTRY_END = b"<Contents>", b"</Contents>"
FORM_BYTES_MAX = 2_048
FORMS_KEPT = 64
_TEXTS = re.compile(rb">[^<>]+<")
_TEXT = rb"[ -%'-;=?-~]*+"
"""ASCII that can be seen and that XML does not write in another way."""
_QUOTE = rb"(?:&quot;|&#34;)?+"
_FIELDS = {
    "Key": _TEXT,
    "LastModified": ISO_TIME.encode(),
    "ETag": _QUOTE + _TEXT + _QUOTE,
    "Size": rb"[0-9]{1,18}",
}


def quick_entries(page: bytes) -> tuple[list[dict[str, Any]], bytes] | None:
    """All entries, of each the fields that are read, as the client answers them; and the page
    without the entries. None: it has none, or is to be read the general way.
    """
    begun = at = page.find(_ENTRY)
    if begun < 0 or _HEAD.fullmatch(page, 0, begun) is None:
        return None
    found: list[dict[str, Any]] = []
    form: re.Pattern[bytes] | None = None
    while page.startswith(_ENTRY, at):
        match = None if form is None else form.match(page, at)
        if match is None:
            form = _form_at(page, at)
            match = None if form is None else form.match(page, at)
        if match is None:
            return None
        entry = _entry(match)
        if entry is None:
            return None
        found.append(entry)
        at = match.end()
    if page.find(_ENTRY[:-1], at) >= 0:
        return None
    return found, page[:begun] + page[at:]


def _entry(match: re.Match[bytes]) -> dict[str, Any] | None:
    key, modified, etag, size = match.group("Key", "LastModified", "ETag", "Size")
    try:
        modified_at = datetime.fromisoformat(modified.decode())
    except ValueError:
        return None  # no such day
    if b"&" in etag:
        etag = etag.replace(b"&quot;", b'"').replace(b"&#34;", b'"')
    return {
        "Key": key.decode(),
        "LastModified": modified_at,
        "ETag": etag.decode(),
        "Size": int(size),
    }


def _form_at(page: bytes, at: int) -> re.Pattern[bytes] | None:
    """What the entry there looks like, whatever its texts are."""
    end = page.find(_ENTRY_END, at)
    if end < 0:
        return None
    tags = _TEXTS.sub(b"><", page[at : end + len(_ENTRY_END)])
    return _form(tags) if len(tags) <= FORM_BYTES_MAX else None


@lru_cache(maxsize=FORMS_KEPT)
def _form(tags: bytes) -> re.Pattern[bytes] | None:
    """The expression for entries of these tags; None: not each field is there exactly once."""
    if b"<!" in tags or b"<?" in tags:
        return None
    try:
        entry = ElementTree.fromstring(tags)  # noqa: S314 — tags alone: no entities, no DOCTYPE
    except ElementTree.ParseError:
        return None
    children = [each.tag for each in entry]
    below = [each.tag for each in entry.iter()]
    pattern = re.escape(tags)
    for name, text in _FIELDS.items():
        opening, closing = f"<{name}>".encode(), f"</{name}>".encode()
        if not children.count(name) == below.count(name) == tags.count(opening + closing) == 1:
            return None
        group = b"(?P<" + name.encode() + b">" + text + b")"
        pattern = pattern.replace(opening + closing, opening + group + closing)
    return re.compile(pattern.replace(b"><", b">" + _TEXT + b"<"))


_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RuntimeError)


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
    async def parse(self, response: Any, shape: Any) -> Any:
        """ResponseParserError for whatever is no answer of S3's: the library's own code meets a
        size that is no number, or an element twice, with errors of its own.
        """
        try:
            return await super().parse(response, shape)
        except Exception as error:
            if not isinstance(response["body"], bytes):
                response["body"].close()  # of an object, which nobody will read
            if isinstance(error, _UNREADABLE):
                raise ResponseParserError(
                    f"a field of it is none: {type(error).__name__}"
                ) from error
            raise

    def _parse_payload(
        self, response: dict[str, Any], shape: Any, member_shapes: Any, final_parsed: dict[str, Any]
    ) -> None:
        check_form(shape.name, response["body"])
        quick = quick_entries(response["body"]) if shape.name == _PAGE_SHAPE else None
        if quick is None:
            super()._parse_payload(response, shape, member_shapes, final_parsed)  # type: ignore[misc]
            return
        entries, rest = quick
        super()._parse_payload(response | {"body": rest}, shape, member_shapes, final_parsed)  # type: ignore[misc]
        final_parsed["Contents"] = entries

    def _handle_boolean(self, shape: Any, text: Any) -> bool:  # noqa: ARG002
        return truth(text if isinstance(text, str) else text.text or "")


def read_pages_once(client: Any) -> None:
    """Of a client's answers only what is no page of a list is looked through for an error."""
    client.meta.events.unregister(_ANSWERED, _handle_200_error)
    client.meta.events.register_first(_ANSWERED, _find_error)


def _find_error(operation_model: Any, response_dict: Any, **more: Any) -> None:
    if operation_model.name != _LIST or _PAGE.match(response_dict["body"]) is None:
        _handle_200_error(operation_model, response_dict, **more)
