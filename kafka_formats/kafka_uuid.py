"""Kafka's Uuid: 16 raw bytes, written as 22 characters of URL-safe base64 without padding.

Source: org.apache.kafka.common.Uuid.
"""

from __future__ import annotations

import base64
import binascii
import re

from kafka_formats.errors import InvalidRequest

_CANONICAL = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
"""The form of an id. The last character carries only two bits of it; its other bits are zero."""


class Uuid(bytes):
    """Sixteen bytes, most significant first. `str()` gives Kafka's 22-character text form."""

    def __new__(cls, raw: bytes) -> Uuid:
        if len(raw) != 16:
            raise InvalidRequest(f"a Uuid has 16 bytes, not {len(raw)}", field="uuid")
        return super().__new__(cls, raw)

    @classmethod
    def parse(cls, text: str) -> Uuid:
        """Read the text form; anything but the canonical 22 characters is an InvalidRequest."""
        if _CANONICAL.fullmatch(text) is None:
            raise InvalidRequest(
                f"{text[:40]!r} is not a Kafka Uuid (22 characters of URL-safe base64)",
                field="uuid",
            )
        return cls(binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + "=="))

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self).decode("ascii").rstrip("=")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


ZERO_UUID = Uuid(bytes(16))
