"""Makes a signed GET as an S3 client would send it, without most of the client's work.

Endpoint, bucket addressing and the signature's scope are equal for every GET and are taken once
from a URL that the client signed. Its signer, credentials and connections are used, so that time
limits, TLS and proxies are the client's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

PLAIN_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
"""Keys without characters to escape, and without parts that a server might treat as `..`."""

PROBE_KEY = "k"
"""The key of the signed URL for `target_of`."""

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class GetTarget:
    """The URL of a bucket's objects, and the scope of a signature."""

    url: str
    region: str
    service: str


def target_of(signed_url: str) -> GetTarget | None:
    """The target, from a URL of `PROBE_KEY` that the client signed; None if it signs otherwise."""
    parts = urlsplit(signed_url)
    query = parse_qs(parts.query)
    scope = query.get("X-Amz-Credential", [""])[0].split("/")
    if query.get("X-Amz-Algorithm") != [_ALGORITHM] or len(scope) < 5:
        return None
    url = parts._replace(query="").geturl().removesuffix(PROBE_KEY)
    return GetTarget(url, region=scope[-3], service=scope[-2])


def signed_get(
    target: GetTarget, key: str, *, byte_range: str | None, user_agent: str, credentials: Any
) -> AWSPreparedRequest:
    """A request ready to be sent; `key` must match `PLAIN_KEY`, `credentials` are frozen."""
    headers = {"User-Agent": user_agent}
    if byte_range is not None:
        headers["Range"] = byte_range
    request = AWSRequest(method="GET", url=target.url + key, headers=headers, stream_output=True)
    S3SigV4Auth(credentials, target.service, target.region).add_auth(request)
    return request.prepare()
