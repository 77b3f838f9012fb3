"""Records and batches of 200 MiB: copied and read, or the setting that is too small is named."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.compression import Codec
from kafka_formats.errors import InvalidRequest
from kafka_formats.record_batch import parse_header
from rlm.control.why_not import WhyNot
from rlm.data_plane.read_request import RecordFormat, RecordsRequest
from tests.rlm.broker_files import (
    FIRST_TIMESTAMP_MS,
    ReplicaWriter,
    write_checkpoint,
    write_log_dir,
)
from tests.rlm.one_node import CLEANED_UP_AFTER_S, LIMITS, Node, new_world
from tests.rlm.virtual_time import run_virtually

MIB = 1 << 20
LARGE = replace(LIMITS, batch_bytes_max=201 * MIB)


def large_log(path: Path, codec: Codec, *values: int) -> ReplicaWriter:
    """One sealed segment: a small record, a batch with values of so many zeros, a small record."""
    replica = ReplicaWriter(write_log_dir(path))
    replica.append()
    replica.append_values(*map(bytes, values), codec=codec)
    replica.append()
    replica.roll()
    write_checkpoint(
        replica.log_dir, "replication-offset-checkpoint", {("orders", 0): replica.next_offset}
    )
    return replica


async def read(node: Node, replica: ReplicaWriter, format_: RecordFormat) -> int:
    """Bytes of the records from offset 1 on."""
    request = RecordsRequest(1, 300 * MIB, format=format_)
    return sum([len(each) async for each in node.parts.reads.records(replica.partition, request)])


def test_a_batch_over_the_limit_waits_by_the_settings_name_until_it_is_raised(
    tmp_path: Path,
) -> None:
    replica = large_log(tmp_path / "kafka", Codec.NONE, 200 * MIB)

    async def main() -> None:
        world = new_world(tmp_path, (replica.log_dir,))
        async with world.boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert node.finished(replica.partition) == []
            page = node.remote_log.status(replica.partition)
            assert (page.why_not_copying, page.blocked) == (WhyNot.BACK_OFF, None)
            assert page.last_error is not None
            assert page.last_error.kind == "invalid_request"
            told = r"segment 0 to 2: copier\.batch_bytes_max: .* over the limit .*: raise the limit"
            assert re.match(told, page.last_error.text)
            await node.remote_log.close()
        async with world.boot(data_plane=True, limits=LARGE) as node:
            await node.remote_log.run_once()
            assert node.finished(replica.partition) == [(0, 2)]
            assert await read(node, replica, RecordFormat.BATCHES) > 200 * MIB

    run_virtually(main)


def test_large_records_are_found_by_time_and_read_as_stored(tmp_path: Path) -> None:
    replica = large_log(tmp_path / "kafka", Codec.ZSTD, 200 * MIB)

    async def main() -> None:
        async with new_world(tmp_path, (replica.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            for timestamp, offset in ((FIRST_TIMESTAMP_MS + 1, 1), (-3, 2)):
                answer = await node.parts.answers.offsets(replica.partition, timestamp)
                assert answer.offset == offset
            stored = await read(node, replica, RecordFormat.BATCHES)
            log = replica.path(0, ".log").read_bytes()
            assert stored == len(log) - parse_header(log, source="log", position=0).size_bytes
            with pytest.raises(InvalidRequest, match="format=batches"):
                await read(node, replica, RecordFormat.JSON_LINES)

    run_virtually(main)


def test_a_search_by_time_in_a_batch_over_the_limit_names_the_setting(tmp_path: Path) -> None:
    """It was told as damage."""
    replica = large_log(tmp_path / "kafka", Codec.ZSTD, 70 * MIB, 70 * MIB)

    async def main() -> None:
        world = new_world(tmp_path, (replica.log_dir,))
        timestamp = FIRST_TIMESTAMP_MS + 2
        async with world.boot(data_plane=True) as node:
            await node.remote_log.run_once()
            with pytest.raises(InvalidRequest, match=r"batch at offset 1 .*: raise") as told:
                await node.parts.answers.offsets(replica.partition, timestamp)
            assert told.value.field == "copier.batch_bytes_max"
            assert node.parts.reads.seen.seen == {}
        async with world.boot(data_plane=True, limits=LARGE) as node:
            answer = await node.parts.answers.offsets(replica.partition, timestamp)
            assert (answer.offset, answer.timestamp_ms) == (2, timestamp)

    run_virtually(main)
