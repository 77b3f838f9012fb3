"""`partition.metadata` and `meta.properties`: the identity of a partition and of a log directory.

Sources: Kafka's PartitionMetadataFile, MetaProperties, and java.util.Properties for the syntax of
the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid

_PARTITION_METADATA = re.compile(rb"version: ([0-9]+)\r?\ntopic_id: ([!-~]+)\r?\n?")
_NODE_ID_MAX = 2**31 - 1
_COMMENTS = ("#", "!")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_partition_metadata(data: Buffer, *, source: str) -> Uuid:
    """The topic id in a `partition.metadata` file."""
    match = _PARTITION_METADATA.fullmatch(bytes(data))
    if match is None:
        raise CorruptData(
            "a partition.metadata file has the lines `version: 0` and `topic_id: ID`",
            source=source,
            position=0,
        )
    if match[1] != b"0":
        raise CorruptData(
            f"a partition.metadata file of the unknown version {match[1][:20].decode('ascii')}",
            source=source,
            position=match.start(1),
        )
    topic_id = _uuid(match[2].decode("ascii"), source=source, position=match.start(2))
    if topic_id == ZERO_UUID:
        raise CorruptData(
            "the topic id is all zeros, which stands for no id",
            source=source,
            position=match.start(2),
        )
    return topic_id


def _uuid(text: str, *, source: str, position: int) -> Uuid:
    try:
        return Uuid.parse(text)
    except InvalidRequest as error:
        raise CorruptData(str(error), source=source, position=position) from error


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Write a `partition.metadata` file, byte for byte as Kafka does."""
    return f"version: 0\ntopic_id: {topic_id}".encode("ascii")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The cluster and node that a log directory belongs to.

    Version 0 files name the node `broker.id`, version 1 files `node.id`. `directory_id` is None in
    files that were written before Kafka 3.7.
    """

    version: int
    cluster_id: str
    node_id: int
    directory_id: Uuid | None = None


def parse_meta_properties(data: Buffer, *, source: str) -> MetaProperties:
    """Read a `meta.properties` file; CorruptData names the key that is missing or wrong."""
    values: dict[str, str] = {}
    positions: dict[str, int] = {}
    for position, key, value in _properties(bytes(data), source):
        values[key] = value
        positions[key] = position

    def number(key: str, largest: int) -> int:
        text = required(key)
        if not re.fullmatch("[0-9]{1,10}", text) or int(text) > largest:
            raise CorruptData(
                f"{key} = {text[:40]!r} is not a number from 0 to {largest}",
                source=source,
                position=positions[key],
            )
        return int(text)

    def required(key: str) -> str:
        if not values.get(key):
            raise CorruptData(f"{key} is missing", source=source, position=len(data))
        return values[key]

    version = number("version", 1)
    node_id = number("node.id" if version else "broker.id", _NODE_ID_MAX)
    directory_text = values.get("directory.id")
    return MetaProperties(
        version,
        required("cluster.id"),
        node_id,
        _uuid(directory_text, source=source, position=positions["directory.id"])
        if directory_text
        else None,
    )


def encode_meta_properties(properties: MetaProperties) -> bytes:
    """Write a `meta.properties` file, keys in order."""
    values: dict[str, str] = {"cluster.id": properties.cluster_id}
    if properties.directory_id is not None:
        values["directory.id"] = str(properties.directory_id)
    values["node.id" if properties.version else "broker.id"] = str(properties.node_id)
    values["version"] = str(properties.version)
    return _encode_properties(values)


def _properties(data: bytes, source: str) -> Iterator[tuple[int, str, str]]:
    """(position, key, value) of every line of a Java properties file without continued lines."""
    position = 0
    for raw in data.split(b"\n"):
        # As in Java: white space before a key is dropped, after a value it belongs to the value.
        line = raw.decode("latin-1").lstrip(" \t\f\r").rstrip("\r")
        if line and not line.startswith(_COMMENTS):
            key, value = _split(line, source, position)
            yield position, key, value
        position += len(raw) + 1


def _split(line: str, source: str, position: int) -> tuple[str, str]:
    """Cut at the first separator that is not escaped: `=`, `:` or white space around either."""
    key_match = re.match(r"(?:\\.|[^\\=: \t\f])*", line)
    key = key_match[0] if key_match else ""
    value = re.sub(r"^[ \t\f]*[=:]?[ \t\f]*", "", line[len(key) :], count=1)
    return _unescape(key, source, position), _unescape(value, source, position)


def _unescape(text: str, source: str, position: int) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped in ("", "u"):
            raise CorruptData(
                f"an escape in {text[:60]!r} is incomplete",
                source=source,
                position=position,
            )
        return _ESCAPES.get(escaped, escaped)

    units = re.sub(r"\\(u[0-9a-fA-F]{4}|.|$)", replace, text)
    # Escapes are UTF-16: two may form one character; half of a pair is replaced.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _encode_properties(values: Mapping[str, str]) -> bytes:
    lines = [f"{key}={_escape(value)}\n" for key, value in values.items()]
    return "".join(lines).encode("ascii")


def _escape(value: str) -> str:
    escaped = []
    for index, character in enumerate(value):
        if character in "\\=:#!" or (character == " " and index == 0):
            escaped.append("\\" + character)
        elif " " <= character <= "~":
            escaped.append(character)
        else:
            raw = character.encode("utf-16-be", "surrogatepass")
            escaped += [f"\\u{raw[at : at + 2].hex()}" for at in range(0, len(raw), 2)]
    return "".join(escaped)
