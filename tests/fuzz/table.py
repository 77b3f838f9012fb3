"""The table of every parser of disk, wire and HTTP input, and what it leaves out and why."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType

from tests.fuzz.engine import Target
from tests.fuzz.format_targets import format_targets
from tests.fuzz.forwarded_request_targets import forwarded_request_targets
from tests.fuzz.listener_targets import listener_targets
from tests.fuzz.metadata_targets import metadata_targets
from tests.fuzz.pipeline_targets import pipeline_targets
from tests.fuzz.plugin_targets import plugin_targets
from tests.fuzz.quorum_targets import quorum_targets
from tests.fuzz.remote_targets import remote_targets
from tests.fuzz.store_targets import store_targets

PACKAGES = ("kafka_formats", "kafka_client", "rlmm", "rlm", "api", "kafka_listener")

_PARSER = re.compile(
    r"(parse|decode|decompress|read|scan|load|unpack|from)(_.*)?|iter_records|negotiated|frame_end"
    r"|.+_produced"
)
_PARSER_CLASS = re.compile(r".*(Reader|BatchScanner|Decoder|Parser)")

_ROWS = "reads rows and hands their values to row_values"
_FILES = "opens files and hands their bytes to parsers of this table"
_BYTES = "hands on bytes whose checksum was right, and parses none itself"
LEFT_OUT: dict[str, str] = {
    **{
        f"rlmm.rows.reads.{name}": _ROWS
        for name in (
            "read_partition_row",
            "read_lineage",
            "read_segment",
            "read_totals",
            "read_policy",
            "read_feature_level",
            "read_record_time",
            "read_measured_time",
            "read_lost_ranges",
            "read_restart",
        )
    },
    "rlmm.rows.rows.RowReader": _ROWS,
    "rlmm.rows.rows.read_decoded": _ROWS,
    "rlmm.manager.segment_history.read_history": "decodes through rlmm.records.records.decode",
    "rlm.migration.topic_reader.TopicReader": (
        "takes batches apart by kafka_formats.record_batch, records by rlmm.records.records.decode"
    ),
    "rlm.local_log.hold_unit.scan_batches": "reads headers by kafka_formats.record_batch",
    "rlmm.log.quorum_state_file.load": _FILES,
    "rlmm.wire.frames.load_schemas": "imports kio's modules, and reads no input",
    "kafka_listener.protocol.codec.load_schemas": "imports kio's modules, and reads no input",
    "rlmm.wire.schema.load": "compiles a schema, and reads no input",
    "rlm.node_files.audit_log.read_newest": _FILES,
    "rlm.stores.cluster_marker.read_marker": "fetches the object that ClusterMarker.decode takes",
    "rlm.local_log.lost_epochs.read_heads": _FILES,
    "rlm.local_log.hold_unit.read_unit": _FILES,
    "rlm.local_log.replica_directory.read_replica": _FILES,
    "rlm.local_log.replica_directory.read_small": _FILES,
    "rlm.data_plane.segment_gathering.from_threads": "hands sizes to the event loop",
    "rlm.data_plane.batches_read.read_batches": _BYTES,
    "rlm.data_plane.segment_reader.SegmentReader": _BYTES,
    "rlm.data_plane.aiven_reader.AivenReader": "fetches objects for the rows `manifest`, `aiven: "
    "indexes` and `aiven: chunks`",
    "rlm.data_plane.aiven_keys.AivenKeys.load": "opens an operator's files for a library",
    "rlm.data_plane.tiered_read.read_log": _BYTES,
    "rlm.data_plane.tiered_read.read_index": _BYTES,
}
"""By name: what looks like a parser and is none."""


def targets() -> list[Target]:
    """Every row, each under a name of its own."""
    rows = [
        *format_targets(),
        *forwarded_request_targets(),
        *listener_targets(),
        *metadata_targets(),
        *pipeline_targets(),
        *plugin_targets(),
        *quorum_targets(),
        *remote_targets(),
        *store_targets(),
    ]
    assert len({row.name for row in rows}) == len(rows)
    return rows


def modules() -> Iterator[ModuleType]:
    """Every module of the packages."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            yield importlib.import_module(found.name)


def parsers_of(module: ModuleType) -> Iterator[str]:
    """Public functions and class methods of `module` that look like parsers, by full name."""
    for name, member in vars(module).items():
        if name.startswith("_") or getattr(member, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(inspect.unwrap(member)) and _PARSER.fullmatch(name):
            yield f"{module.__name__}.{name}"
        elif inspect.isclass(member):
            if _PARSER_CLASS.fullmatch(name):
                yield f"{module.__name__}.{name}"
            for inner, method in vars(member).items():
                if isinstance(method, classmethod | staticmethod) and _PARSER.fullmatch(inner):
                    yield f"{module.__name__}.{name}.{inner}"
