"""What stock kafka-dump-log finds in nodes' metadata logs and snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real.kafka import run_tool

BOOTSTRAP = f"{0:020d}-{0:010d}.checkpoint"
COMPLAINTS = ("isvalid: false", "Non-consecutive", "Mismatches", "Found", "invalid", "orrupt")
_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* partitionLeaderEpoch: (\d+) "
    r".* crc: (\d+) isvalid: true$"
)


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One line of the tool's; `crc` is over all of the batch behind it, attributes included."""

    base_offset: int
    last_offset: int
    count: int
    epoch: int
    crc: int


def segments(metadata_log: Path) -> list[Path]:
    """The log's segments, oldest first."""
    return sorted(metadata_log.glob("*.log"))


def snapshots(metadata_log: Path) -> list[Path]:
    """Those of the view, oldest first: not what `format` wrote, which is a node's own."""
    return sorted(set(metadata_log.glob("*.checkpoint")) - {metadata_log / BOOTSTRAP})


def dumped(files: Sequence[Path]) -> dict[Path, list[DumpedBatch]]:
    """The batches of each file, from one start of the tool, which finds nothing to complain of."""
    text = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--remote-log-metadata-decoder", "--deep-iteration"),
        *("--files", ",".join(map(str, files))),
    )
    found: dict[Path, list[DumpedBatch]] = {}
    batches: list[DumpedBatch] = []
    for line in text.splitlines():
        if line.startswith("| offset: "):
            continue  # a record: what it holds may read like anything
        assert not any(word in line for word in COMPLAINTS), line
        if line.startswith("Dumping "):
            batches = found.setdefault(Path(line.removeprefix("Dumping ")), [])
        elif match := _BATCH.match(line):
            batches.append(DumpedBatch(*map(int, match.groups())))
    assert list(found) == list(files)
    return found


def assert_consecutive(batches: Iterable[DumpedBatch]) -> None:
    """Neither a hole nor a repetition, and epochs that never fall."""
    before: DumpedBatch | None = None
    for batch in batches:
        assert batch.count == batch.last_offset - batch.base_offset + 1
        if before is not None:
            assert batch.base_offset == before.last_offset + 1
            assert batch.epoch >= before.epoch
        before = batch
