"""A proxy between a broker's plug-in and its node that passes calls on, and falsifies answers."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

NODE_DEADLINE_S = 60
PIECE_BYTES = 1 << 16
PAGE = b"<html><body>Service temporarily moved</body></html>"
HOP_BY_HOP = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})


class Lie(Enum):
    """What becomes of the answer to a call. None of it says "nothing is there"."""

    NOT_FOUND = "a proxy's 404, with a page"
    PAGE = "200, with a page"
    EMPTY = "200 of the right media type, without a byte"
    CUT = "half of what was promised, and the end of the connection"
    SHORTENED = "half of it, with a length that fits"


class LyingProxy:
    """Listens on a free loopback port while it is entered. `lies` by the name of the call may be
    set at any time, as may `unheard`: calls that never reach the node, and get a page. `told`
    counts both.
    """

    def __init__(self, node_url: str) -> None:
        self.lies: Mapping[str, Lie] = {}
        self.unheard: Collection[str] = ()
        self.told: Counter[str] = Counter()
        address = node_url.removeprefix("http://")

        class Handler(_Passing):
            proxy = self
            node = http.client.HTTPConnection(address, timeout=NODE_DEADLINE_S)

            def setup(self) -> None:
                super().setup()
                self.node = http.client.HTTPConnection(address, timeout=NODE_DEADLINE_S)

            def finish(self) -> None:
                self.node.close()
                super().finish()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="lying proxy")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Passing(BaseHTTPRequestHandler):
    """One connection of the broker, and its twin to the node."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: LyingProxy
    node: http.client.HTTPConnection

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        """Pass a call on."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        call = self.path.rpartition("/")[2]
        if call in self.proxy.unheard:
            self.proxy.told[call] += 1
            with suppress(BrokenPipeError, ConnectionResetError):
                self._page(404)
            return
        try:
            self.node.request("POST", self.path, body, dict(self.headers))
            answer = self.node.getresponse()
        except (OSError, http.client.HTTPException):  # as if nothing listened here
            self.node.close()
            self.close_connection = True
            return
        lie = self.proxy.lies.get(call)
        with suppress(BrokenPipeError, ConnectionResetError, http.client.IncompleteRead):
            if lie is None:
                self._pass(answer)
            else:
                self.proxy.told[call] += 1
                self._lie(lie, answer, answer.read())

    def _head(self, answer: http.client.HTTPResponse, length: int | None) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _page(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def _pass(self, answer: http.client.HTTPResponse) -> None:
        self._head(answer, answer.length)
        chunked = answer.length is None
        while piece := answer.read1(PIECE_BYTES):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        answer.close()  # `read1` leaves the last step out, and the connection waits for it
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _lie(self, lie: Lie, answer: http.client.HTTPResponse, body: bytes) -> None:
        match lie:
            case Lie.NOT_FOUND | Lie.PAGE:
                self._page(404 if lie is Lie.NOT_FOUND else 200)
            case Lie.EMPTY:
                self._head(answer, 0)
            case Lie.SHORTENED:
                self._head(answer, len(body) // 2)
                self.wfile.write(body[: len(body) // 2])
            case Lie.CUT:
                self._head(answer, len(body))
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
