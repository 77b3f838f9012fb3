"""Parses the times in a store's answers without botocore's general parser.

That parser tries formats for as long as the rest of a small request takes, and a page of a list has
a thousand times.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime

# RFC 9110's preferred form, in headers; ISO 8601 as S3 writes it, in bodies.
from botocore.utils import parse_timestamp

_HTTP_DATE = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}(:[0-9]{2}){2} GMT"
)
_ISO = re.compile(r"[0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2}(?::[0-9]{2}){2}(?:\.[0-9]{1,6})?Z")


def parsed_timestamp(text: str) -> datetime:
    """A time in one of the two usual forms, otherwise by botocore's parser. ValueError if neither
    can read it.
    """
    try:
        if _HTTP_DATE.fullmatch(text):
            return parsedate_to_datetime(text)
        if _ISO.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass  # not a valid day: the general parser raises the error
    parsed: datetime = parse_timestamp(text)
    return parsed
