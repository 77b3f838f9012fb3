"""Buckets that Aiven's plug-in wrote, with what a consumer read of them."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.catalogue.tiered_segment import TieredSegment
from rlm.format.manifest import parse_manifest
from rsm_backends.store_config import StoreConfig
from tests.real.toolbox import REPOSITORY

SMALL = REPOSITORY / "tests" / "data" / "aiven-bucket"
SAMPLES = Path(os.environ.get("STRANDLINE_SAMPLES", REPOSITORY.parent / "shared" / "samples"))
"""A whole cluster's: larger than what is kept with the tests."""

Row = tuple[int, int, str, str, str]


@dataclass(frozen=True)
class AivenTopic:
    """A topic's folder in a bucket; `prefix` stands in front of its keys."""

    bucket: Path
    topic: str
    prefix: str = ""

    @property
    def store(self) -> StoreConfig:
        return StoreConfig(name="main", kind="filesystem", path=self.bucket, prefix=self.prefix)

    def segments(self) -> list[TieredSegment]:
        """By their manifests."""
        found = []
        for path in sorted(self.bucket.glob(f"{self.prefix}{self.topic}-*/0/*.rsm-manifest")):
            manifest = parse_manifest(path.read_bytes(), source=path.name)
            found.append(
                TieredSegment(
                    segment_id=manifest.segment_id,
                    store="main",
                    start_offset=manifest.start_offset,
                    end_offset=manifest.end_offset,
                    first_offset=manifest.start_offset,
                    last_offset=manifest.end_offset,
                    max_timestamp_ms=manifest.max_timestamp_ms,
                    log_bytes=manifest.log_bytes,
                    txn_index_empty=manifest.txn_index_empty,
                    leader_epochs=manifest.leader_epochs,
                )
            )
        return found


def expected(folder: Path, topic: str, isolation: str) -> list[Row]:
    """What Kafka's consumer read of the whole topic."""
    lines = gzip.decompress((folder / f"{topic}.{isolation}.p0.tsv.gz").read_bytes()).decode()
    fields = (line.split("\t") for line in lines.splitlines())
    return [(int(f[1]), int(f[2]), f[3], f[4], f[5] if len(f) > 5 else "") for f in fields]


def shown(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """Rows of all columns, as the consumer wrote them down."""
    return [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            "null" if row["key"] is None else row["key"].decode(),
            "null" if row["value"] is None else hashlib.sha256(row["value"]).hexdigest(),
            "".join(f"{h['key']}={h['value'].decode()};" for h in row["headers"] or ()),
        )
        for row in rows
    ]
