"""GETs that go past most of botocore: reads of a tier are little else.

One request through the client costs 0.65 ms of CPU, half of it for what is the same at every GET
(endpoint rules, hooks, the fields of an answer that nobody reads). Here that is worked out once, by
the client itself; its signer, its credentials and its connections are used, so that time limits,
TLS and proxies are the client's. Only the answer hoped for is taken: after any other one, and for
keys that a URL cannot hold as they are, the caller goes the general way and hears what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiobotocore.response import StreamingBody
from botocore.exceptions import BotoCoreError

from rsm_backends.s3_signed_get import PLAIN_KEY, PROBE_KEY, GetTarget, signed_get, target_of

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client


class QuickGets:
    """Of one bucket, by the client given."""

    def __init__(self, client: S3Client, bucket: str, user_agent: str) -> None:
        self._client: Any = client
        self._bucket = bucket
        self._user_agent = user_agent
        self._target: GetTarget | None = None
        self._impossible = False

    async def get(self, key: str, byte_range: str | None) -> dict[str, Any] | None:
        """`Body` and `ResponseMetadata` as the client answers them; None: go the general way.

        Raises what the client's session raises when the connection fails.
        """
        if self._impossible or PLAIN_KEY.fullmatch(key) is None:
            return None
        credentials = self._client._get_credentials()
        if credentials is None:
            self._impossible = True
            return None
        target = self._target or await self._find_target()
        if target is None:
            return None
        request = signed_get(
            target,
            key,
            byte_range=byte_range,
            user_agent=self._user_agent,
            credentials=await credentials.get_frozen_credentials(),
        )
        answer = await self._client._endpoint.http_session.send(request)
        if answer.status_code != (200 if byte_range is None else 206):
            answer.raw.close()
            return None
        return {
            "Body": StreamingBody(answer.raw, answer.headers.get("content-length")),
            "ResponseMetadata": {
                "HTTPStatusCode": answer.status_code,
                "HTTPHeaders": answer.headers,
            },
        }

    async def _find_target(self) -> GetTarget | None:
        """By the endpoint rules of the client, from a URL that it signs."""
        try:
            signed = await self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": PROBE_KEY}
            )
        except BotoCoreError:
            return None  # credentials, perhaps, that are not there yet: the general way tells
        self._target = target_of(signed)
        self._impossible = self._target is None
        return self._target
