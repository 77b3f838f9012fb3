"""Recognises addresses of this machine itself, so that no proxy of the environment is asked.

`HTTP_PROXY` without `NO_PROXY` would send a token for a node on this machine to another one.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """True if the URL's host is this machine; False for text that is not a URL."""
    try:
        host = (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    address = _address(host)
    if address is None:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    # 0.0.0.0 and [::] are here, too: a node that listens on all addresses gives them as its own.
    return address.is_loopback or address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that the text stands for, None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return _short_form(host)


def _short_form(host: str) -> IPv4Address | None:
    """An IPv4 address in a form that resolvers take as inet_aton does: `127.1`, `0x7f.1`,
    `2130706433`. The last part stands for all bytes that are left.
    """
    parts = host.split(".")
    try:
        *first, last = (_number(part) for part in parts)
    except ValueError:
        return None
    bits = 8 * (4 - len(first))
    if len(parts) > 4 or any(each > 255 for each in first) or last >= 1 << bits:
        return None
    for at, each in enumerate(first):
        last |= each << (24 - 8 * at)
    return IPv4Address(last)


def _number(part: str) -> int:
    """C's decimal, octal (`0`) or hexadecimal (`0x`) number; ValueError for anything else."""
    if not part.isascii() or not part.isalnum():
        raise ValueError(part)  # int() takes more than C does
    if part.lower().startswith("0x"):
        return int(part, 16)
    return int(part, 8 if part.startswith("0") and part.isdigit() else 10)


def direct_mounts(url: str) -> dict[str, None]:
    """The `mounts` for an httpx client of `url`: on this machine they bypass any proxy."""
    return dict.fromkeys(("http://", "https://", "all://")) if is_loopback(url) else {}
