"""The user's name in the first message of a login; bytes are counted by it. Pure.

Access is never decided by this name: the broker decides. A message with several names is read as
Kafka's brokers read it: in SCRAM the first `n` is the user (extensions follow the nonce), in
OAUTHBEARER the last `auth` has the token. Sources: RFC 4616, RFC 5802, RFC 7628; Kafka's
ScramMessages and OAuthBearerClientInitialResponse; the principal of a token is its `sub`, as
Kafka's brokers take it by default.
"""

from __future__ import annotations

import base64
import json

from kafka_listener.access.login import OAUTHBEARER, PLAIN

NAME_CHARACTERS_MAX = 255
UNKNOWN = ""


def parse_user(mechanism: str, message: bytes) -> str:
    """The user's name; `UNKNOWN` if the message has none."""
    text = message.decode(errors="replace")
    if mechanism == PLAIN:
        parts = text.split("\0")
        name = parts[1] if len(parts) == 3 else UNKNOWN
    elif mechanism == OAUTHBEARER:
        name = _subject(text)
    else:
        names = (part[2:] for part in text.split(",") if part.startswith("n="))
        name = next(names, UNKNOWN).replace("=2C", ",").replace("=3D", "=")
    return name[:NAME_CHARACTERS_MAX]


def _subject(text: str) -> str:
    pairs = dict(pair.partition("=")[::2] for pair in text.split("\x01"))
    claims = pairs.get("auth", "").partition(" ")[2].split(".")[1:2]
    try:
        padded = claims[0] + "=" * (-len(claims[0]) % 4)
        found = json.loads(base64.urlsafe_b64decode(padded))
    except (LookupError, ValueError, RecursionError):
        return UNKNOWN
    subject = found.get("sub") if isinstance(found, dict) else None
    return subject if isinstance(subject, str) else UNKNOWN
