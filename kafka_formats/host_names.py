"""Names of hosts, and addresses with one, as operators write them. Pure."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def is_host(text: str) -> bool:
    """True if a resolver takes it: a name has no empty part, and none over 63 characters."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in text


def http_address(text: str) -> SplitResult | None:
    """The parts of an address with http:// or https://, a host and perhaps a port; None for any
    other text.
    """
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return None
    return parts if parts.scheme in ("http", "https") and host and is_host(host) else None
