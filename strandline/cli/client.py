"""The query commands' view of a node: HTTP requests, problems turned back into errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    Fenced,
    InternalError,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    Refused,
    RetryLater,
    StrandlineError,
)

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

_KINDS: dict[str, type[StrandlineError]] = {
    kind.kind: kind
    for kind in (Conflict, Fenced, InternalError, InvalidRequest, NotFound, OutcomeUnknown, Refused)
}


class NodeClient:
    """Asks one node. Every method raises the error kind that the node answered with."""

    def __init__(self, url: str, token_file: Path | None) -> None:
        headers = {}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {_read_token(token_file)}"
        self._url = url
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=REQUEST_TIMEOUT_S)
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidRequest(f"{url!r} is not an address: {error}", field="--url") from None

    def get(self, path: str, **params: object) -> Any:
        """The JSON of one answer."""
        with self._speaking():
            answer = self._http.get(path, params=_present(params))
            _raise_for_problem(answer)
            return answer.json()

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
        """The body of one answer, piece by piece."""
        with (
            self._speaking(),
            self._http.stream(
                "GET", path, params=_present(params), headers={"Accept": accept}
            ) as answer,
        ):
            if answer.is_error:
                answer.read()
            _raise_for_problem(answer)
            yield from answer.iter_bytes()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise RetryLater(
                f"no answer from {self._url} ({error or type(error).__name__}); is the node "
                "running? Name another with --url or STRANDLINE_URL"
            ) from None


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
        kind, detail = str(problem["kind"]), str(problem.get("detail") or problem.get("title"))
    except (ValueError, KeyError, TypeError):
        raise InternalError(f"HTTP {answer.status_code} without problem details") from None
    if kind == "corrupt_data":
        raise CorruptData(detail, source=str(answer.url.path), position=0)
    if kind == "already_exists":
        raise Conflict(detail, reason="ALREADY_EXISTS")
    if kind == "retry_later":
        raise RetryLater(detail)
    raise _KINDS.get(kind, InternalError)(detail)
