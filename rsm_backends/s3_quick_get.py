"""GETs that bypass most of botocore; reads of a tier consist mostly of GETs.

One request through the client costs 0.65 ms of CPU, half of it for work that is equal for every GET
(endpoint rules, hooks, fields of an answer that are not used). Here the client does that work once;
its signer, credentials and connections are used, so that time limits, TLS and proxies are the
client's. Only 200 or, for a range, 206 is accepted: after any other answer, and for keys that need
escaping in a URL, the caller uses the whole client and gets the error there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiobotocore.response import StreamingBody
from botocore.exceptions import BotoCoreError

from rsm_backends.s3_signed_get import PLAIN_KEY, PROBE_KEY, GetTarget, signed_get, target_of

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client


class QuickGets:
    """Quick GETs from one bucket, by the given client."""

    def __init__(self, client: S3Client, bucket: str, user_agent: str) -> None:
        self._client: Any = client
        self._bucket = bucket
        self._user_agent = user_agent
        self._target: GetTarget | None = None
        self._impossible = False

    async def get(self, key: str, byte_range: str | None) -> dict[str, Any] | None:
        """`Body` and `ResponseMetadata` as the client returns them; None: use the whole client.

        Raises the errors of the client's session when the connection fails.
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
        """The target by the client's endpoint rules, from a URL that it signs."""
        try:
            signed = await self._client.generate_presigned_url(
                "get_object", Params={"Bucket": self._bucket, "Key": PROBE_KEY}
            )
        except BotoCoreError:
            return None  # perhaps credentials are still missing: the whole client reports it
        self._target = target_of(signed)
        self._impossible = self._target is None
        return self._target
