"""The name of a user in the first message of a login, by which bytes are counted. Pure.

Not for deciding anything: the broker does that. Sources: RFC 4616, RFC 5802, RFC 7628; the
principal of a token is its `sub`, as Kafka's brokers take it by default.
"""

from __future__ import annotations

import base64
import json

from kafka_listener.access.login import OAUTHBEARER, PLAIN

NAME_CHARACTERS_MAX = 255
UNKNOWN = ""


def parse_user(mechanism: str, message: bytes) -> str:
    """The user's name; `UNKNOWN`: there is none to be found."""
    text = message.decode(errors="replace")
    if mechanism == PLAIN:
        parts = text.split("\0")
        name = parts[1] if len(parts) == 3 else UNKNOWN
    elif mechanism == OAUTHBEARER:
        name = _subject(text)
    else:
        fields = {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}
        name = fields.get("n", UNKNOWN).replace("=2C", ",").replace("=3D", "=")
    return name[:NAME_CHARACTERS_MAX]


def _subject(text: str) -> str:
    token = text.partition("auth=Bearer ")[2].partition("\x01")[0]
    claims = token.split(".")[1:2]
    try:
        padded = claims[0] + "=" * (-len(claims[0]) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded))
    except (LookupError, ValueError, RecursionError):
        return UNKNOWN
    subject = found.get("sub") if isinstance(found, dict) else None
    return subject if isinstance(subject, str) else UNKNOWN
