"""GETs that go past most of botocore: reads of a tier are little else.

One request through the client costs 0.65 ms of CPU, half of it for what is the same at every GET
(endpoint rules, hooks, the fields of an answer that nobody reads). Here that is worked out once, by
the client itself; its signer, its credentials and its connections are used, so that time limits,
TLS and proxies are the client's. Only the answer hoped for is taken: after any other one, and for
keys that a URL cannot hold as they are, the caller goes the general way and hears what is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from aiobotocore.response import StreamingBody
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
"""Nothing to escape, and no segment that a server might take for a way up."""

_ALGORITHM = "AWS4-HMAC-SHA256"
_PROBE_KEY = "k"


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the objects of a bucket are, and what a signature is for."""

    url: str
    region: str
    service: str


class QuickGets:
    """Of one bucket, by the client given."""

    def __init__(self, client: S3Client, bucket: str, user_agent: str) -> None:
        self._client: Any = client
        self._bucket = bucket
        self._user_agent = user_agent
        self._target: _Target | None = None
        self._impossible = False

    async def get(self, key: str, byte_range: str | None) -> dict[str, Any] | None:
        """`Body` and `ContentRange` as the client answers them; None: go the general way.

        Raises what the client's session raises when the connection fails.
        """
        if self._impossible or _PLAIN_KEY.fullmatch(key) is None:
            return None
        credentials = self._client._get_credentials()
        if credentials is None:
            self._impossible = True
            return None
        target = self._target or await self._find_target()
        if target is None:
            return None
        headers = {"User-Agent": self._user_agent}
        if byte_range is not None:
            headers["Range"] = byte_range
        request = AWSRequest(
            method="GET", url=target.url + key, headers=headers, stream_output=True
        )
        frozen = await credentials.get_frozen_credentials()
        S3SigV4Auth(frozen, target.service, target.region).add_auth(request)
        answer = await self._client._endpoint.http_session.send(request.prepare())
        if answer.status_code != (200 if byte_range is None else 206):
            answer.raw.close()
            return None
        found = {"Body": StreamingBody(answer.raw, answer.headers.get("content-length"))}
        if "content-range" in answer.headers:
            found["ContentRange"] = answer.headers["content-range"]
        return found

    async def _find_target(self) -> _Target | None:
        """By the endpoint rules of the client, from a URL that it signs."""
        try:
            signed = await self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": _PROBE_KEY}
            )
        except BotoCoreError:
            return None  # credentials, perhaps, that are not there yet: the general way tells
        parts = urlsplit(signed)
        query = parse_qs(parts.query)
        scope = query.get("X-Amz-Credential", [""])[0].split("/")
        if query.get("X-Amz-Algorithm") != [_ALGORITHM] or len(scope) < 5:
            self._impossible = True
            return None
        url = parts._replace(query="").geturl().removesuffix(_PROBE_KEY)
        self._target = _Target(url, region=scope[-3], service=scope[-2])
        return self._target
