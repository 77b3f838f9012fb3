"""Recognises addresses of this machine itself, so that no proxy of the environment is asked.

`HTTP_PROXY` without `NO_PROXY` would send a token for a node on this machine to another one.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """True if the URL's host is this machine; False for text that is not a URL."""
    try:
        host = (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    # 0.0.0.0 and [::] are here, too: a node that listens on all addresses gives them as its own.
    return address.is_loopback or address.is_unspecified


def direct_mounts(url: str) -> dict[str, None]:
    """The `mounts` for an httpx client of `url`: on this machine they bypass any proxy."""
    return dict.fromkeys(("http://", "https://", "all://")) if is_loopback(url) else {}
