"""HTTP client of the commands that ask a node; problem details become errors again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Self

import httpx
import typer

from kafka_formats.errors import (
    InvalidRequest,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from kafka_formats.host_names import http_address
from kafka_formats.loopback import direct_mounts
from kafka_formats.problem_errors import error_of_problem

DEFAULT_URL = "http://127.0.0.1:9480"
REQUEST_TIMEOUT_S = 35.0
PAGES_MAX = 100_000

UrlOption = Annotated[
    str, typer.Option("--url", envvar="STRANDLINE_URL", help="Address of the node to ask.")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="STRANDLINE_TOKEN_FILE",
        help="File that holds the bearer token; a token on the command line would show in `ps`.",
    ),
]


class NodeClient:
    """Client of one node. Its methods raise the kind of error that the node answered."""

    def __init__(self, url: str, token_file: Path | None) -> None:
        headers = {}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {_read_token(token_file)}"
        self._url = url
        try:
            if http_address(url) is None:
                raise ValueError("no http:// or https:// with a host, or a wrong port")
            self._http = httpx.Client(
                base_url=url,
                headers=headers,
                timeout=REQUEST_TIMEOUT_S,
                mounts=direct_mounts(url),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidRequest(
                f"{url!r} is not an address ({error}); write it like {DEFAULT_URL}", field="--url"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: object) -> Any:
        """The JSON of one answer."""
        with self._speaking():
            return _json_of(self._http.get(path, params=_present(params)))

    def ask(self, path: str, body: dict[str, object], **params: object) -> Any:
        """The JSON of the answer to a question too long for an address; changes nothing."""
        with self._speaking():
            return _json_of(self._http.post(path, params=_present(params), json=body))

    def change(
        self, method: str, path: str, body: dict[str, object] | None = None, **params: object
    ) -> Any:
        """Send a change; return the JSON of the answer. OutcomeUnknown: no answer came, so the
        change may or may not have been made.
        """
        try:
            answer = self._http.request(method, path, params=_present(params), json=body)
        except httpx.ConnectError as error:
            raise self._unreachable(error) from None
        except httpx.HTTPError as error:
            raise OutcomeUnknown(
                f"no answer from {self._url} ({error or type(error).__name__}): the change may or "
                "may not have been made. Look before you repeat it"
            ) from None
        return _json_of(answer)

    def pages(self, path: str, items: str, **params: object) -> Iterator[dict[str, Any]]:
        """All items of a paged resource."""
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = self.get(path, cursor=cursor, **params)
            yield from page[items]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def stream(self, path: str, *, accept: str, **params: object) -> Iterator[bytes]:
        """The body of one answer, piece by piece. RetryLater: it broke off before its end."""
        received = 0
        with (
            self._speaking(),
            self._http.stream(
                "GET", path, params=_present(params), headers={"Accept": accept}
            ) as answer,
        ):
            if answer.is_error:
                answer.read()
            _raise_for_problem(answer)
            try:
                for piece in answer.iter_bytes():
                    received += len(piece)
                    yield piece
            except httpx.HTTPError as error:
                raise RetryLater(
                    f"the answer broke off after {received} bytes ({error}); what came so far is "
                    "not the whole. The node's log says why"
                ) from None

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: httpx.HTTPError) -> RetryLater:
        return RetryLater(
            f"no answer from {self._url} ({error or type(error).__name__}); is the node running? "
            "Name another with --url or STRANDLINE_URL"
        )


def _json_of(answer: httpx.Response) -> Any:
    _raise_for_problem(answer)
    try:
        return answer.json()
    except ValueError:
        raise _no_node(answer) from None


def _present(params: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items() if value is not None}


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        message = f"{path} can't be read: {error.strerror}"
        raise InvalidRequest(message, field="--token-file") from None
    if not token or not token.isascii() or any(char.isspace() for char in token):
        raise InvalidRequest(f"{path} does not hold one token", field="--token-file")
    return token


def _raise_for_problem(answer: httpx.Response) -> None:
    """Rebuild the error from the problem details (RFC 9457) of the answer."""
    if not answer.is_error:
        return
    try:
        problem = answer.json()
    except ValueError:
        raise _no_node(answer) from None
    raise error_of_problem(problem, answer.status_code) or _no_node(answer)


def _no_node(answer: httpx.Response) -> StrandlineError:
    """The error for an answer that is not a node's: a proxy, or another program on that port."""
    message = f"{answer.url} answered HTTP {answer.status_code}, but not as a Strandline node does"
    if answer.status_code >= 500:
        return RetryLater(f"{message}; is there a proxy in between, and the node behind it down?")
    return InvalidRequest(f"{message}; name the node's address", field="--url")
