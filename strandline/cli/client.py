"""The HTTP client of the commands that query a node; it turns problem documents back into
errors.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import httpx
import typer

from kafka_formats.errors import (
    Conflict,
    InvalidRequest,
    OutcomeUnknown,
    RetryLater,
    StrandlineError,
)
from kafka_formats.host_names import http_address
from kafka_formats.loopback import direct_mounts, is_loopback
from kafka_formats.problem_errors import error_of_problem

DEFAULT_URL = "http://127.0.0.1:9480"
REQUEST_TIMEOUT_S = 35.0
PAGES_MAX = 100_000

UrlOption = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="STRANDLINE_URL",
        help="Address of the node to query; several, separated by commas, are tried in turn.",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="STRANDLINE_TOKEN_FILE",
        help="File with the bearer token; a token on the command line would be visible in `ps`.",
    ),
]


class NodeClient:
    """Client of the cluster's nodes at `url`: one address, or several separated by commas. Its
    methods raise the kind of error that a node answered.

    It uses the first node that can be reached, and the next ones while none can: a read may be
    repeated at a different node, a change only if it was certainly not sent. If a node can't
    forward a request to the node that can answer, it names that one; the request is then sent once
    to the address that that node registered.
    """

    def __init__(
        self, url: str, token_file: Path | None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self._timeout_s = timeout_s
        self._headers = {}
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {_read_token(token_file)}"
        self._clients = {each.strip(): self._client(each.strip()) for each in url.split(",")}
        self._named = tuple(self._clients)
        self._asked = self._named[0]

    def _client(self, url: str) -> httpx.Client:
        try:
            if http_address(url) is None:
                raise ValueError("it needs http:// or https://, a host, and a valid port")
            return httpx.Client(
                base_url=url,
                headers=self._headers,
                timeout=self._timeout_s,
                mounts=direct_mounts(url),
                verify=authorities_for(url),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidRequest(
                f"{url!r} is not the address of a node ({error}): write it like {DEFAULT_URL}",
                field="--url",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def get(self, path: str, **params: object) -> Any:
        """The JSON of one answer."""
        return self._followed(partial(self._ask, "GET", path, params=_present(params)))

    def ask(self, path: str, body: dict[str, object], **params: object) -> Any:
        """The JSON of the answer to a read whose parameters are too long for a URL; changes
        nothing.
        """
        return _json_of(self._ask("POST", path, params=_present(params), json=body))

    def change(
        self, method: str, path: str, body: dict[str, object] | None = None, **params: object
    ) -> Any:
        """Send a change; return the JSON of the answer. OutcomeUnknown: no answer came, so the
        change may or may not have been made.
        """
        return self._followed(
            partial(self._change, method, path, params=_present(params), json=body)
        )

    def change_node(self, method: str, path: str, body: dict[str, object] | None = None) -> Any:
        """Send a change that is about the queried node itself. InvalidRequest: `url` has several
        addresses, and the change must not go to whichever answers first.
        """
        if len(self._named) > 1:
            raise InvalidRequest(
                "this changes one node: give only the address of that node", field="--url"
            )
        return _json_of(self._change(method, path, params={}, json=body))

    def _followed(self, send: Callable[[], httpx.Response]) -> Any:
        """The JSON of the answer; of the node that the first one names, if it names one."""
        try:
            return _json_of(send())
        except Conflict as refused:
            url = None if refused.ask_node is None else self._url_of(refused.ask_node)
            if url is None:
                raise
        if url not in self._clients:
            self._clients[url] = self._client(url)
        self._asked = url
        return _json_of(send())

    def _change(self, method: str, path: str, **sent: Any) -> httpx.Response:
        failures = []
        for url in self._in_turn():
            try:
                return self._clients[url].request(method, path, **sent)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failures.append((url, error))
            except httpx.HTTPError as error:
                raise OutcomeUnknown(
                    f"no answer from {url} ({error or type(error).__name__}): the change may or "
                    "may not have been made. Check the present state before you repeat it"
                ) from None
        raise _unreachable(failures)

    def _ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        failures = []
        for url in self._in_turn():
            try:
                return self._clients[url].request(method, path, **sent)
            except httpx.HTTPError as error:
                failures.append((url, error))
        raise _unreachable(failures)

    def _in_turn(self) -> Iterator[str]:
        """The address that answered last, then the remaining ones; the one in use is remembered."""
        urls = list(self._clients)
        first = urls.index(self._asked)
        for url in (*urls[first:], *urls[:first]):
            self._asked = url
            yield url

    def _url_of(self, node_id: int) -> str | None:
        """The address that a node registered; None: it has none to which the token may be sent."""
        try:
            node = _json_of(self._ask("GET", f"/v1/nodes/{node_id}"))
        except StrandlineError:
            return None
        url = node.get("http") if isinstance(node, dict) else None
        if not isinstance(url, str) or url == self._asked:
            return None
        return url if self._may_follow_to(url) else None

    def _may_follow_to(self, url: str) -> bool:
        """True if a request may be sent on to `url`. False for an invalid address, and if the token
        would be exposed more than the user accepted: without TLS although an address with TLS was
        given, or beyond this machine although an address on it was given.
        """
        if url in self._named:
            return True
        at = http_address(url)
        if at is None or at.scheme == "https" or not self._headers:
            return at is not None
        schemes = {parts.scheme for each in self._named if (parts := http_address(each))}
        stays_here = any(map(is_loopback, self._named))
        return "https" not in schemes and (is_loopback(url) or not stays_here)

    def pages(self, path: str, items: str, **params: object) -> Iterator[dict[str, Any]]:
        """All items of a paged resource that is the same on every node."""
        return _items(lambda cursor: self.get(path, cursor=cursor, **params), items)

    def pages_of_node(self, path: str, items: str, **params: object) -> Iterator[dict[str, Any]]:
        """All items of a node's own paged resource. The node that answers the first page is asked
        for the remaining pages, as its cursors are not valid at a different node. RetryLater: the
        answer broke off.
        """
        answered = ""

        def page(cursor: str | None) -> Any:
            nonlocal answered
            if cursor is None:
                first = self.get(path, **params)
                answered = self._asked
                return first
            query = _present({"cursor": cursor, **params})
            try:
                return _json_of(self._clients[answered].get(path, params=query))
            except httpx.HTTPError as error:
                raise RetryLater(
                    f"no answer from {answered} ({error or type(error).__name__}) to a further "
                    "page, which only that node can answer: run the command again"
                ) from None

        return _items(page, items)

    def stream(self, path: str, *, accept: str, **params: object) -> Iterator[bytes]:
        """The body of one answer, piece by piece. RetryLater: it broke off before its end."""
        received = 0
        with self._streamed(path, accept, _present(params)) as answer:
            if answer.is_error:
                answer.read()
            _raise_for_problem(answer)
            try:
                for piece in answer.iter_bytes():
                    received += len(piece)
                    yield piece
            except httpx.HTTPError as error:
                raise RetryLater(
                    f"the answer broke off after {received} bytes ({error}) and is incomplete: "
                    "find the reason in the node's log, and run the command again"
                ) from None

    @contextmanager
    def _streamed(self, path: str, accept: str, params: dict[str, str]) -> Iterator[httpx.Response]:
        failures = []
        with ExitStack() as stack:
            for url in self._in_turn():
                streamed = self._clients[url].stream(
                    "GET", path, params=params, headers={"Accept": accept}
                )
                try:
                    answer = stack.enter_context(streamed)
                except httpx.HTTPError as error:
                    failures.append((url, error))
                    continue
                yield answer
                return
            raise _unreachable(failures)


def _items(page_from: Callable[[str | None], Any], items: str) -> Iterator[dict[str, Any]]:
    """The items of all pages, each requested by the cursor of the previous one."""
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = page_from(cursor)
        yield from page[items]
        cursor = page.get("next_cursor")
        if cursor is None:
            return


def _unreachable(failures: Sequence[tuple[str, httpx.HTTPError]]) -> RetryLater:
    told = "; ".join(f"no answer from {url} ({error or type(error).__name__})"
                     for url, error in failures)  # fmt: skip
    are = "is the node running?" if len(failures) == 1 else "are the nodes running?"
    return RetryLater(f"{told}; {are} Give a different address with --url or STRANDLINE_URL")


def _json_of(answer: httpx.Response) -> Any:
    _raise_for_problem(answer)
    try:
        return answer.json()
    except ValueError:
        raise _no_node(answer) from None


def _present(params: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items() if value is not None}


def authorities_for(url: str) -> ssl.SSLContext | bool:
    """The authorities to trust at `url`: the usual ones, whose loading takes a tenth of a command's
    time; none at http:// on this machine, where neither TLS nor a proxy is used.
    """
    is_plain = url.lower().startswith("http://") and is_loopback(url)
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        message = f"{path} can't be read ({error.strerror}): check the path and its permissions"
        raise InvalidRequest(message, field="--token-file") from None
    if not token or not token.isascii() or any(char.isspace() for char in token):
        raise InvalidRequest(
            f"{path} has to contain exactly one token, in ASCII and without spaces",
            field="--token-file",
        )
    return token


def _raise_for_problem(answer: httpx.Response) -> None:
    """Rebuild the error from the problem document (RFC 9457) of the answer. A redirection counts as
    one: its address is not followed here, as it could get the token.
    """
    if not answer.is_error and not answer.is_redirect:
        return
    try:
        problem = answer.json()
    except ValueError:
        raise _no_node(answer) from None
    raise error_of_problem(problem, answer.status_code) or _no_node(answer)


def _no_node(answer: httpx.Response) -> StrandlineError:
    """The error for an answer that is not from a node: from a proxy, or a different program on that
    port.
    """
    message = f"{answer.url} answered HTTP {answer.status_code}, but not as a Strandline node does"
    if answer.status_code >= 500:
        return RetryLater(
            f"{message}: if a proxy is in between, check that the node after it is running"
        )
    return InvalidRequest(f"{message}: give the node's address", field="--url")
