"""Blocking HTTP requests from a driver to one node, each with deadlines."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from kafka_formats.errors import CorruptData, InvalidRequest, RetryLater, StrandlineError
from kafka_formats.loopback import direct_mounts
from kafka_formats.problem_errors import error_of_problem
from pipeline.catalogue.node_address import CA_FILE_OPTION, URL_OPTION, NodeAddress

CONNECT_DEADLINE_S = 10.0
SILENCE_DEADLINE_S = 60.0
"""The longest pause between two bytes of an answer."""
PAGES_MAX = 100_000


class NodeClient:
    """Asks one node. Methods raise the error kind that the node answered, or RetryLater without an
    answer. Not for several threads at once.
    """

    def __init__(self, address: NodeAddress) -> None:
        self._address = address
        headers = {} if address.token is None else {"Authorization": f"Bearer {address.token}"}
        self._http = httpx.Client(
            base_url=address.url,
            headers=headers,
            timeout=httpx.Timeout(SILENCE_DEADLINE_S, connect=CONNECT_DEADLINE_S),
            verify=_trust(address),
            mounts=direct_mounts(address.url),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str, **params: str | int) -> Any:
        """The JSON of one answer."""
        with self._speaking():
            answer = self._http.get(path, params=params)
        return self._document(answer)

    def post(self, path: str, body: object) -> Any:
        """Posts `body` as JSON; returns the JSON of the answer."""
        with self._speaking():
            answer = self._http.post(path, json=body)
        return self._document(answer)

    def pages(self, path: str, key: str, **params: str | int) -> Iterator[Any]:
        """The entries under `key` of all pages."""
        for _ in range(PAGES_MAX):
            page = self.get(path, **params)
            yield from page[key]
            if page["next_cursor"] is None:
                return
            params["cursor"] = page["next_cursor"]
        raise InvalidRequest(f"{path} has more than {PAGES_MAX} pages", field=URL_OPTION)

    def lines(self, path: str, **params: str | int) -> Iterator[dict[str, Any]]:
        """The JSON objects of an answer with one object a line. RetryLater if it breaks off."""
        with self._speaking(), self._http.stream("GET", path, params=params) as answer:
            if answer.is_error:
                answer.read()
                self._document(answer)
            rest = b""
            for chunk in answer.iter_bytes():
                *whole, rest = (rest + chunk).split(b"\n")
                if whole:  # at once: a call a line would take as long as the parsing
                    yield from _parse(b"[" + b",".join(whole) + b"]", path)
            if rest:
                raise CorruptData("the answer ends within a line", source=path, position=0)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise RetryLater(
                f"no complete answer from {self._address.url} ({error or type(error).__name__}); "
                f"is the node running? {URL_OPTION} may name any node of the cluster"
            ) from None

    def _document(self, answer: httpx.Response) -> Any:
        """The JSON of an answer. Raises the error that the answer contains."""
        try:
            document = answer.json()
        except ValueError:
            raise self._no_node(answer) from None
        if answer.is_error:
            raise error_of_problem(document, answer.status_code) or self._no_node(answer)
        return document

    def _no_node(self, answer: httpx.Response) -> StrandlineError:
        message = f"HTTP {answer.status_code} from {answer.url} did not come from a Strandline node"
        if answer.status_code >= 500:
            return RetryLater(f"{message}; is there a proxy in between, and the node down?")
        return InvalidRequest(f"{message}: correct the address", field=URL_OPTION)


def _parse(data: bytes, path: str) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(data)
    except ValueError as error:
        raise CorruptData(f"the answer is not JSON: {error}", source=path, position=0) from None
    return found


def _trust(address: NodeAddress) -> ssl.SSLContext | bool:
    if address.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=address.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(f"{address.ca_file}: {error}", field=CA_FILE_OPTION) from None
