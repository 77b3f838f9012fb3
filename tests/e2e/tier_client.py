"""Asks a node over HTTP, as a person with a client would."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx

from tests.e2e.http import PLAIN
from tests.real.kafka_clients import ConsumedRecord, Isolation

READ_BYTES_MAX = 1 << 30


class TierClient:
    """What the tests ask of one partition."""

    def __init__(
        self, url: str, topic: str, partition: int, *, topic_id: str | None = None
    ) -> None:
        self._base = f"{url}/v1/topics/{topic}/partitions/{partition}"
        self._which = {} if topic_id is None else {"topic_id": topic_id}

    def status(self) -> dict[str, Any]:
        """Where the partition stands; empty while the node does not know it."""
        answer = PLAIN.get(self._base, params=self._which)
        if answer.status_code == 404:
            return {}
        return self._json(answer)

    def segments(self) -> list[dict[str, Any]]:
        """All rows of the partition, whatever their state; none while the node does not know it."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            parameters = {"limit": "20"} | ({"cursor": cursor} if cursor else {}) | self._which
            answer = PLAIN.get(f"{self._base}/segments", params=parameters)
            if answer.status_code == 404:
                return []
            page = self._json(answer)
            found += page["segments"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def log(self, segment_id: str) -> bytes:
        """One segment's `.log`, as stored."""
        answer = PLAIN.get(f"{self._base}/segments/{segment_id}/log")
        assert answer.status_code == 200, answer.text
        return answer.content

    def records(self, isolation: Isolation, *, start: int = 0) -> list[ConsumedRecord]:
        """Everything in the tier from `start` on, from JSON lines."""
        data = self._read(isolation, "json_lines", start)
        return [_record(json.loads(line)) for line in data.splitlines()]

    def batches(self, *, start: int = 0) -> bytes:
        """Everything in the tier from `start` on, as stored."""
        return self._read("read_uncommitted", "batches", start)

    def _read(self, isolation: Isolation, wanted: str, start: int) -> bytes:
        answer = PLAIN.get(
            f"{self._base}/records",
            params={
                "offset": str(start),
                "max_bytes": str(READ_BYTES_MAX),
                "isolation": isolation,
                "format": wanted,
            }
            | self._which,
        )
        assert answer.status_code == 200, answer.text
        return answer.content

    @staticmethod
    def _json(answer: httpx.Response) -> dict[str, Any]:
        assert answer.status_code == 200, answer.text
        parsed = answer.json()
        assert isinstance(parsed, dict)
        return parsed


def _record(line: dict[str, Any]) -> ConsumedRecord:
    return ConsumedRecord(
        offset=line["offset"],
        timestamp_ms=line["timestamp_ms"],
        key=_bytes(line["key"], line["key_encoding"]),
        value=_bytes(line["value"], line["value_encoding"]),
        headers=tuple(
            (header["key"], _bytes(header["value"], header["encoding"]))
            for header in line["headers"]
        ),
    )


def _bytes(text: str | None, encoding: str | None) -> bytes | None:
    if text is None:
        return None
    return text.encode() if encoding == "utf-8" else base64.b64decode(text, validate=True)
