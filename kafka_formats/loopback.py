"""Addresses of this machine itself: no proxy of the environment is asked for them.

`HTTP_PROXY` without `NO_PROXY` would send a token for a node on this machine to another one.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """Whether what the URL names is on this machine; False for what is no URL."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def direct_mounts(url: str) -> dict[str, None]:
    """The `mounts` of an httpx client of `url`: on this machine they go before any proxy."""
    return dict.fromkeys(("http://", "https://", "all://")) if is_loopback(url) else {}
