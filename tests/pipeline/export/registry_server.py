"""A schema registry of a few schemas, as far as deserialisers ask for them."""

from __future__ import annotations

import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class RegistryServer:
    """`schemas` by id: subject, type, text. Ids ascend with the versions of a subject."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.status: int | None = None
        """What every request is answered with, if it is to fail."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = server.answer(self.path)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def add(self, subject: str, kind: str, text: str, serialized: str | None = None) -> int:
        number = len(self.schemas) + 1
        self.schemas[number] = {
            "subject": subject,
            "version": 1 + sum(each["subject"] == subject for each in self.schemas.values()),
            "id": number,
            "schemaType": kind,
            "schema": text,
            "serialized": serialized,
        }
        return number

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if self.status is not None:
            return self.status, {"error_code": self.status * 100, "message": "not today"}
        path, _, query = path.partition("?")
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            found = self.schemas.get(int(match[1]))
        elif match := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|\d+)", path):
            versions = [each for each in self.schemas.values() if each["subject"] == match[1]]
            if match[2] != "latest":
                versions = [each for each in versions if each["version"] == int(match[2])]
            found = versions[-1] if versions else None
        else:
            found = None
        if found is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        text = found["serialized"] if "format=serialized" in query else found["schema"]
        return 200, {**found, "schema": text}


def framed(schema_id: int, payload: bytes) -> bytes:
    """A value as serialisers write it: a zero byte, the schema's id, the payload."""
    return struct.pack(">bI", 0, schema_id) + payload
