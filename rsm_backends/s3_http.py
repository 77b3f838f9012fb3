"""HTTP sessions for the S3 clients that limit what a server can make them do.

Redirects are not followed: the library's session would send the request, body included, to any host
that an answer names. A request whose connection is lost is not sent again inside the library: a
create-only write could find its own object, without a check whose object it is. The body of an
answer that is not an object's bytes has a bound.
"""

from __future__ import annotations

from typing import Any

from aiobotocore.awsrequest import AioAWSResponse
from aiobotocore.httpsession import AIOHTTPSession
from botocore.awsrequest import AWSResponse
from botocore.parsers import ResponseParserError

from rsm_backends.s3_plain_connections import Deadlines, keep_deadlines

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""The longest answer that is not an object's bytes: a page of a thousand of the longest keys, each
character escaped, has 4 MiB.
"""
_PIECE_BYTES = 64 * 1024


class S3HttpSession(AIOHTTPSession):
    """aiobotocore's session with these limits, for `http_session_cls` of its config."""

    async def send(self, request: Any) -> Any:
        """Send a request as aiobotocore's session does; ResponseParserError for an answer that is
        too long.
        """
        is_object, request.stream_output = request.stream_output, True
        try:
            answer: Any = await super().send(request)
        finally:
            request.stream_output = is_object
        bounded: Any = _BoundedAnswer(answer.url, answer.status_code, answer.headers, answer.raw)
        if not is_object:
            await bounded.content
        return bounded

    async def _get_session(self, proxy_url: str | None) -> Any:
        session: Any = await super()._get_session(proxy_url)  # type: ignore[misc]  # stubs lack it
        session._retry_connection = False  # no public way
        return _WithoutRedirects(session)


class _WithoutRedirects:
    """aiohttp's session without redirects; `request` is the only method that is used."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, method: str, **arguments: Any) -> Any:
        answer = await self._session.request(method, allow_redirects=False, **arguments)
        try:
            for name, text in answer.raw_headers:
                name.decode(), text.decode()
        except UnicodeDecodeError:
            answer.close()  # the library would leave it open
            raise
        return answer


class _BoundedAnswer(AioAWSResponse):
    _content: bytes | None
    raw: Any

    async def _content_prop(self) -> bytes:
        if self._content is None:
            pieces, left = [], ANSWER_BYTES_MAX
            try:
                while piece := await self.raw.content.read(_PIECE_BYTES):
                    left -= len(piece)
                    _check_left(left)
                    pieces.append(piece)
            except BaseException:
                self.raw.close()
                raise
            self.raw.release()  # an answer without a body is not released by reading its end
            self._content = b"".join(pieces)
        return self._content


class BlockingHttpSession:
    """botocore's session `within` with these limits. An answer, up to the start of an object's
    body, takes at most `deadline_s`, even if its bytes come slowly.
    """

    def __init__(self, within: Any, deadlines: Deadlines, deadline_s: float) -> None:
        self._within = within
        self._deadlines = deadlines
        self._deadline_s = deadline_s
        keep_deadlines(within, deadlines)

    def send(self, request: Any) -> AWSResponse:
        """Send a request as botocore's session does; ResponseParserError for an answer that is too
        long.
        """
        self._deadlines.begin(self._deadline_s)
        is_object, request.stream_output = request.stream_output, True
        try:
            answer = self._within.send(request)
        finally:
            request.stream_output = is_object
        if not is_object or answer.status_code >= 300:  # the library's own condition
            answer._content = self._read(answer)
        found: AWSResponse = answer
        return found

    def close(self) -> None:
        """Close the session's connections."""
        self._within.close()

    def _read(self, answer: Any) -> bytes:
        pieces, left = [], ANSWER_BYTES_MAX
        while piece := answer.raw.read1(_PIECE_BYTES):
            left -= len(piece)
            try:
                _check_left(left)
                self._deadlines.check()
            except BaseException:
                answer.raw.close()
                raise
            pieces.append(piece)
        return b"".join(pieces)


def _check_left(left: int) -> None:
    if left < 0:
        raise ResponseParserError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
