"""A broker that answers logins as it is told, and keeps every byte that came."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from kafka_listener.protocol.apis import SERVED, Api
from kafka_listener.protocol.codec import Head, encode_response, head_of


def authenticated(message: bytes = b"", error: int = 0, lifetime_ms: int = 0) -> dict[str, object]:
    """An answer to SaslAuthenticate."""
    return {"error_code": error, "auth_bytes": message, "session_lifetime": lifetime_ms}


@dataclass
class ScriptedBroker:
    """`answers` to SaslAuthenticate are taken in their order; `received` and `sent` are the frames
    of logins, without their sizes.
    """

    answers: list[dict[str, object]] = field(default_factory=list)
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
    received: list[bytes] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    connections: list[socket.socket] = field(default_factory=list)
    others: tuple[int, ...] = ()
    """The ids of further brokers that it names, all of them at its own address."""
    highest: dict[int, int] = field(default_factory=dict)
    """The highest version by API key, where it is not the highest that is served."""

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def drop(self) -> None:
        """End every connection."""
        for each in self.connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Listen no more, and end every connection."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.drop()

    def again(self) -> None:
        """Listen at the same port again."""
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._listening.accept()[0]
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                answer = self._answer(head_of(frame), frame)
                if answer is None:
                    return
                connection.sendall(answer)

    def _brokers(self, id_name: str) -> list[dict[str, object]]:
        at = {"host": "127.0.0.1", "port": self.port}
        return [{id_name: each, **at} for each in (1, *self.others)]

    def _answer(self, head: Head, frame: bytes) -> bytes | None:
        match head.api_key:
            case Api.API_VERSIONS:
                keys = [
                    {
                        "api_key": int(api),
                        "min_version": each.low,
                        "max_version": self.highest.get(api, each.high),
                    }
                    for api, each in SERVED.items()
                ]
                return encode_response(head, {"error_code": 0, "api_keys": keys})
            case Api.METADATA:
                brokers = self._brokers("node_id")
                body = {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": []}
                return encode_response(head, body)
            case Api.DESCRIBE_CLUSTER:
                brokers = self._brokers("broker_id")
                body = {"brokers": brokers, "cluster_id": "c", "controller_id": 1}
                return encode_response(head, {"error_code": 0, **body})
            case Api.FIND_COORDINATOR:
                found = self._brokers("node_id")[-1] | {"error_code": 0, "key": "readers"}
                return encode_response(head, {"coordinators": [found]})
            case Api.SASL_HANDSHAKE:
                answer = encode_response(
                    head, {"error_code": 0, "mechanisms": list(self.mechanisms)}
                )
            case Api.SASL_AUTHENTICATE:
                answer = encode_response(head, self.answers.pop(0))
            case _:
                return None
        self.received.append(frame)
        self.sent.append(answer[4:])
        return answer
