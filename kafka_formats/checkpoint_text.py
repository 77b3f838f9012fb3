"""The text form that all of Kafka's checkpoint files share: version, count, one entry a line.

Source: Kafka's CheckpointFile. Kafka ends every line, the last one too; demanding that is what
notices a file that was cut inside its last number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData

_VERSION = "0"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


def parse_entries(data: Buffer, *, fields: int, source: str) -> Iterator[tuple[int, list[str]]]:
    """(position, fields) of every entry, each of exactly `fields` words.

    An empty file has no entries. CorruptData for a wrong version, count or line.
    """
    lines = _lines(bytes(data), source)
    position, version = next(lines, (0, _VERSION))
    if version != _VERSION:
        raise CorruptData(
            f"a checkpoint of the unknown version {version[:20]!r}",
            source=source,
            position=position,
        )
    position, announced_text = next(lines, (len(data), "0"))
    announced = parse_number(announced_text, source=source, position=position, largest=2**31 - 1)
    count = 0
    for line_position, line in lines:
        words = line.split(" ")
        if len(words) != fields or "" in words:
            raise CorruptData(
                f"the line {line[:60]!r} does not have {fields} fields",
                source=source,
                position=line_position,
            )
        count += 1
        yield line_position, words
    if count != announced:
        raise CorruptData(
            f"{announced} entries are announced and {count} are there",
            source=source,
            position=position,
        )


def _lines(data: bytes, source: str) -> Iterator[tuple[int, str]]:
    if data and not data.endswith(b"\n"):
        raise CorruptData("the last line has no end", source=source, position=len(data))
    position = 0
    for raw in data.split(b"\n")[:-1]:
        try:
            yield position, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptData(
                f"the line is not valid UTF-8 ({error.reason})", source=source, position=position
            ) from error
        position += len(raw) + 1


def parse_number(text: str, *, source: str, position: int, largest: int) -> int:
    """A decimal number from 0 to `largest`, as Java writes it: a zero in front is a turned bit."""
    if not _NUMBER.fullmatch(text) or int(text) > largest:
        raise CorruptData(
            f"{text[:40]!r} is not a number from 0 to {largest}", source=source, position=position
        )
    return int(text)


def encode_entries(entries: Iterable[str]) -> bytes:
    """Write lines with version and count in front."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode("utf-8")
