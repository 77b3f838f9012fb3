"""What stores, brokers and HTTP clients send: manifests, custom metadata, keys, answers of the
Kafka protocol, SASL messages, ranges, cursors, tokens.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kio.schema.api_versions.v2 import ApiVersionsResponse
from kio.schema.api_versions.v2.response import ApiVersion
from kio.schema.describe_configs.v3 import DescribeConfigsResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets import v5
from kio.schema.sasl_authenticate.v1 import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeResponse
from kio.serial import entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i16, i64Timedelta
from starlette.exceptions import HTTPException

from api.http.byte_range import parse_range
from api.http.cursors import decode_cursor, encode_cursor
from api.http.tokens import TokenBook
from api.http.validation import parse_uuid
from api.models.quorum import parse_directory_id
from api.routes.contents import negotiated
from api.routes.partitions import parse_timestamp
from kafka_client import connection, frame_check
from kafka_client.sasl import SaslCredentials, sasl_client
from kafka_formats.batch_scan import scan
from kafka_formats.compression import Codec, compress
from kafka_formats.errors import CorruptData, InvalidRequest, Refused
from kafka_formats.record_batch import DECOMPRESSED_BYTES_MAX, records_within
from rlm.cluster_settings.known_settings import Setting, parse_value
from rlm.data_plane.index_check import IndexCheck
from rlm.data_plane.json_lines import lines_of
from rlm.fetch.list_offsets import parse_spec
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.json_fields import Fields
from rlm.format.manifest import parse_manifest
from rlm.format.manifest_transforms import parse_transforms
from rlm.format.object_keys import ObjectSuffix, parse_segment_key, segment_keys
from rlm.node_files.audit_log import encode_audit_line, parse_audit_line
from rlm.node_files.clock_file import encode_clock, parse_clock
from rlm.node_files.kill_switches import Pause, Switch, encode_switches, parse_switches
from rlm.stores.cluster_marker import ClusterMarker
from rlm.stores.snapshot_plan import parse_snapshot_key, snapshot_key
from rlmm.metadata_log import SnapshotId
from tests.api.fake_audit import some_lines
from tests.capture.captured import LOG_DIR
from tests.fuzz import repairs
from tests.fuzz.engine import Target
from tests.fuzz.format_targets import captured_batches, text_of, words
from tests.kafka_client.fake_broker import NO_THROTTLE
from tests.kafka_client.test_frame_check import METADATA, OFFSETS
from tests.kafka_client.test_sasl import NONCE, SERVER_FINAL, SERVER_FIRST
from tests.rlm.format.test_manifest import AIVEN, OURS
from tests.rlmm.records.test_records import SEGMENT_ID

_SOURCE = "the fuzzed bytes"
_KIO_ERRORS = (SerialError, ValueError, LookupError, OverflowError)
_LISTING = "segments of orders"
_SHAPE = (int, int, str)


def _manifest_seeds() -> list[bytes]:
    return [OURS.encode(), *(path.read_bytes() for path in sorted(AIVEN.glob("*.json")))]


def _manifest(data: bytes) -> None:
    manifest = parse_manifest(data, source=_SOURCE)
    if manifest.checksums is not None:
        assert parse_manifest(manifest.encode(), source=_SOURCE) == manifest


def _manifest_chunk_sizes(data: bytes) -> None:
    """What stands behind base64 and zstd, which no mutation of the manifest's text reaches."""
    sizes = base64.b64encode(compress(Codec.ZSTD, data)).decode()
    index = {"type": "variable", "originalChunkSize": 100_000, "originalFileSize": 390_000}
    manifest = {"compression": True, "chunkIndex": {**index, "transformedChunks": sizes}}
    transforms = parse_transforms(Fields(manifest, _SOURCE, ""))
    assert transforms is not None
    assert sum(chunk.stored_bytes for chunk in transforms.chunks.chunks()) > 0


def _custom_metadata(data: bytes) -> None:
    assert CustomMetadata.decode(data).encode() == data


def _fields(data: bytes) -> None:
    """Every way of asking for a field, of any JSON value."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    fields = Fields(value, _SOURCE, "top.")
    for name in list(fields.names())[:5]:
        for ask in (fields.text, fields.integer, fields.boolean, fields.optional_object):
            with suppress(CorruptData):
                ask(name)


def _audit_line(data: bytes) -> None:
    line = parse_audit_line(data, source=_SOURCE)
    assert parse_audit_line(encode_audit_line(line), source=_SOURCE).action is line.action


def _clock(data: bytes) -> None:
    remembered_ms = parse_clock(data, source=_SOURCE)
    assert parse_clock(encode_clock(remembered_ms), source=_SOURCE) == remembered_ms


def _kill_switches(data: bytes) -> None:
    pauses = parse_switches(data, source=_SOURCE)
    assert parse_switches(encode_switches(pauses), source=_SOURCE) == pauses


def _json_lines(data: bytes) -> None:
    for batch in scan(data, source=_SOURCE):
        records = records_within(
            batch.data, batch.header, source=_SOURCE, position=0, bytes_max=DECOMPRESSED_BYTES_MAX
        )
        if records is not None:
            for line in b"".join(lines_of(records, batch, 0, _SOURCE)).splitlines():
                json.loads(line)


def _index_check(data: bytes) -> None:
    """A broker's index is only ever a hint: damage means that one is made anew."""
    check = IndexCheck(0, lambda: data, lambda: data)
    check.offset_index()
    check.time_index()


def _manifest_targets() -> list[Target]:
    return [
        Target(
            "manifest",
            ("rlm.format.manifest.parse_manifest",),
            _manifest,
            _manifest_seeds,
            factor=250,  # `{}` is a dict
        ),
        Target(
            "manifest_chunk_sizes",
            ("rlm.format.manifest_transforms.parse_transforms",),
            _manifest_chunk_sizes,
            lambda: [struct.pack(">iiB3Hi", 4, 50_000, 2, 0, 7, 9_999, 40_000)],
            constant_bytes=20 << 20,  # a step of the decompressor
        ),
    ]


def _store_targets() -> list[Target]:
    return [
        Target(
            "custom_metadata",
            ("rlm.format.custom_metadata.CustomMetadata.decode",),
            _custom_metadata,
            lambda: [
                CustomMetadata(name, 1, 2, 3, 4, 5, 2**32 - 1).encode() for name in ("m", "m" * 40)
            ],
            repair=repairs.trailing_crc,
        ),
        Target(
            "object_keys",
            (
                "rlm.format.object_keys.parse_segment_key",
                "rlm.format.object_keys.parse_topic_folder",
                "rlm.format.object_keys.parse_partition_folder",
                "rlm.format.object_keys.parse_segment_stem",
            ),
            lambda data: parse_segment_key("tier/", text_of(data)),
            words(*segment_keys("tier/", SEGMENT_ID, 183).all(), f"tier/{ObjectSuffix.LOG}"),
            errors=(),
        ),
        Target(
            "snapshot keys",
            ("rlm.stores.snapshot_plan.parse_snapshot_key",),
            lambda data: parse_snapshot_key("tier/", "cluster", text_of(data)),
            words(snapshot_key("tier/", "cluster", SnapshotId(183, 7)), "tier/_strandline/"),
            errors=(),
        ),
        Target(
            "cluster_marker",
            ("rlm.stores.cluster_marker.ClusterMarker.decode",),
            lambda data: ClusterMarker.decode(data, source=_SOURCE),
            lambda: [
                ClusterMarker("cluster", "kafka").encode(),
                ClusterMarker("c", None, ("b",), "main", "63-1.checkpoint").encode(),
            ],
            factor=250,
        ),
        Target("json_fields", (), _fields, _manifest_seeds, factor=250),
        Target(
            "json_lines",
            (),
            _json_lines,
            lambda: [batch for batch in captured_batches() if len(batch) < 2_000],
            constant_bytes=100 << 20,
            repair=repairs.whole_batch,
            share=0.3,
        ),
        Target(
            "index_check",
            (),
            _index_check,
            lambda: [path.read_bytes() for path in sorted(LOG_DIR.glob("*/*index"))[:10]],
            errors=(),
            factor=100,
        ),
    ]


def _frame(entity: Any) -> bytes:
    """With its header: the correlation id and, where the version is flexible, no tagged field."""
    buffer = io.BytesIO()
    buffer.write(b"\0\0\0\x07" + (b"\0" if entity.__flexible__ else b""))
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@cache
def _answers() -> dict[type[Any], list[bytes]]:
    """Answers of a broker by what they are; the types whose answers we read."""
    versions = ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=(ApiVersion(api_key=i16(3), min_version=i16(0), max_version=i16(12)),),
        throttle_time=NO_THROTTLE,
    )
    shake = SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN", "X"))
    said = SaslAuthenticateResponse(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=b"v=x",
        session_lifetime=i64Timedelta.parse(timedelta(0)),
    )
    entities = (versions, METADATA, OFFSETS, shake, said)
    found: dict[type[Any], list[bytes]] = {type(entity): [_frame(entity)] for entity in entities}
    found[DescribeConfigsResponse] = [bytes(8) + b"\0\0\0\0", bytes(8) + b"\0\0\0\x01" + bytes(60)]
    found[v5.ListOffsetsResponse] = [bytes(8) + b"\0\0\0\x01\0\x01o\0\0\0\x01" + bytes(26)]
    return found


def _wire_target(kind: type[Any]) -> Target:
    return Target(
        f"wire {kind.__module__.removeprefix('kio.schema.')}",
        ("kafka_client.frame_check.frame_end",),
        lambda data: connection._decoded(data, kind),
        lambda: _answers()[kind],
        (*_KIO_ERRORS, frame_check.FrameError),
        factor=400,  # an element of a few bytes becomes an entity
    )


def _sasl(data: bytes) -> None:
    """The server's two messages, one behind the other."""
    client = sasl_client(SaslCredentials("SCRAM-SHA-256", "user", "pencil"), lambda: NONCE)
    client.first_message()
    for message in data.split(b"|", 1):
        client.answer(message)


def _wire_targets() -> list[Target]:
    return [
        *(_wire_target(kind) for kind in _answers()),
        Target(
            "wire sasl",
            (),
            _sasl,
            lambda: [SERVER_FIRST + b"|" + SERVER_FINAL, SERVER_FIRST + b"|e=other-error"],
            (Refused,),
            factor=100,
            share=0.1,  # each good first message costs 4,096 rounds of a hash
        ),
    ]


def _cursor_with_check(data: bytes) -> bytes:
    """A payload behind the right check value: the check is no secret."""
    try:
        raw = base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    except ValueError:
        return data
    return repairs.cursor(_LISTING, raw[9:])


def _cursor(data: bytes) -> None:
    key = decode_cursor(_LISTING, {}, text_of(data), _SHAPE)
    assert [type(part) for part in key] == list(_SHAPE)
    sorted((key, (1, 2, "")))  # what a list does with it


def _tokens(data: bytes) -> None:
    path = _token_file()
    path.write_bytes(data)
    book = TokenBook(path)
    assert book.principal("no such token") is None


def _token_file() -> Path:
    return Path(_token_folder().name) / "tokens"


@cache
def _token_folder() -> TemporaryDirectory[str]:
    """Gone with the process."""
    return TemporaryDirectory(prefix="fuzz-")


def _http_targets() -> list[Target]:
    return [
        Target(
            "byte_range",
            ("api.http.byte_range.parse_range",),
            lambda data: parse_range(data.decode("latin-1"), 1_000),
            words("bytes=0-9", "bytes=5-", "bytes=-7", "bytes = 1-2", "items=0-1", "bytes=0-1,3-4"),
            (InvalidRequest, HTTPException),
        ),
        Target(
            "accept header",
            ("api.routes.contents.negotiated",),
            lambda data: negotiated(data.decode("latin-1")),
            words("*/*", "application/x-ndjson;q=0.5, application/octet-stream; q=0.1", "text/*"),
            (HTTPException,),
            factor=150,
        ),
        Target(
            "cursor",
            ("api.http.cursors.decode_cursor",),
            _cursor,
            lambda: [encode_cursor(_LISTING, {}, (1, 2, "ab" * 16)).encode()],
            (InvalidRequest,),
            repair=_cursor_with_check,
        ),
        Target(
            "timestamp",
            ("api.routes.partitions.parse_timestamp", "rlm.fetch.list_offsets.parse_spec"),
            lambda data: parse_spec(parse_timestamp(text_of(data))),
            words("earliest", "latest-tiered", "0", str(2**63 - 1)),
            (InvalidRequest,),
        ),
        Target(
            "uuid parameter",
            ("api.http.validation.parse_uuid",),
            lambda data: parse_uuid(text_of(data), "topic_id"),
            words("b-Jc1l2sQ1ySHBQ2a4nIlw"),
            (InvalidRequest,),
        ),
        Target(
            "directory id parameter",
            ("api.models.quorum.parse_directory_id",),
            lambda data: parse_directory_id(text_of(data)),
            words("b-Jc1l2sQ1ySHBQ2a4nIlw", "AAAAAAAAAAAAAAAAAAAAAA"),
            (InvalidRequest,),
        ),
        Target(
            "token file",
            (),
            _tokens,
            words(f"ci read {'a1' * 32}\n# c\nboss admin {'0' * 64} # x\n"),
            (InvalidRequest,),
            factor=150,
            constant_bytes=2 << 20,  # room to read the largest file that is taken
            share=0.3,  # a file is written each time
        ),
    ]


def _audit_targets() -> list[Target]:
    return [
        Target(
            "values of settings",
            ("rlm.cluster_settings.known_settings.parse_value",),
            lambda data: [parse_value(each, text_of(data)) for each in Setting],
            words("true", "false", "0", "52428800", "9" * 16),
            errors=(),
        ),
        Target(
            "audit_line",
            ("rlm.node_files.audit_log.parse_audit_line",),
            _audit_line,
            lambda: [encode_audit_line(line) for line in some_lines()],
            factor=250,
        ),
        Target(
            "kill switches",
            ("rlm.node_files.kill_switches.parse_switches",),
            _kill_switches,
            lambda: [encode_switches({Switch.DELETING: Pause(1_700_000_000_000, "ann", "why")})],
            factor=250,
        ),
        Target(
            "clock",
            ("rlm.node_files.clock_file.parse_clock",),
            _clock,
            lambda: [encode_clock(1_700_000_000_000)],
            factor=250,
        ),
    ]


def remote_targets() -> list[Target]:
    """All rows of this module."""
    return [
        *_manifest_targets(),
        *_store_targets(),
        *_audit_targets(),
        *_wire_targets(),
        *_http_targets(),
    ]
