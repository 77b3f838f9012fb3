"""Kafka's Java console consumer as a process that reads on.

with ConsoleConsumer(folder, address, "orders", {"group.protocol": "consumer"}) as console:
    console.wait_for(100)
    assert console.records()[0].offset == 0
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.real.kafka import tool_command

DEADLINE_S = 90.0
POLL_S = 0.1
MAIN_CLASS = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRINTED = ("print.partition", "print.offset")
_RECORD = re.compile(rb"^Partition:(\d+)\tOffset:(\d+)\t(.*)$")


class PrintedRecord(NamedTuple):
    """A record as it is printed; `value` up to its first line break."""

    partition: int
    offset: int
    value: bytes


class ConsoleConsumer:
    """It reads from the beginning. `properties` are the consumer's."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        topic: str,
        properties: Mapping[str, str],
    ) -> None:
        folder.mkdir()
        self._output = folder / "records"
        self._errors = folder / "errors"
        config = folder / "consumer.properties"
        lines = {"auto.offset.reset": "earliest", **properties}.items()
        config.write_text("".join(f"{name}={value}\n" for name, value in lines))
        self._command = tool_command(
            MAIN_CLASS,
            *("--bootstrap-server", bootstrap, "--topic", topic, "--command-config", str(config)),
            *(part for name in PRINTED for part in ("--formatter-property", f"{name}=true")),
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=errors)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """A clean end: it leaves its group, and commits what it has printed."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(DEADLINE_S)

    def ended(self) -> None:
        """Once it has ended by itself."""
        assert self._process is not None
        self._process.wait(DEADLINE_S)

    @property
    def said(self) -> str:
        """All else that it printed: errors that end it are in its output."""
        lines = self._output.read_bytes().splitlines()
        other = b"\n".join(line for line in lines if not _RECORD.match(line))
        return other.decode(errors="replace") + self._errors.read_text(errors="replace")

    def records(self) -> list[PrintedRecord]:
        """Those that it has printed, in its order."""
        *lines, _ = self._output.read_bytes().split(b"\n")
        found = filter(None, map(_RECORD.match, lines))
        return [PrintedRecord(int(m[1]), int(m[2]), m[3]) for m in found]

    def wait_for(self, count: int, *, deadline_s: float = DEADLINE_S) -> list[PrintedRecord]:
        """Its records, once there are `count` of them."""
        end = time.monotonic() + deadline_s
        while len(found := self.records()) < count:
            assert self._process is not None
            assert self._process.poll() is None, f"it ended: {self.said}"
            assert time.monotonic() < end, f"{len(found)} of {count} came: {self.said}"
            time.sleep(POLL_S)
        return found
