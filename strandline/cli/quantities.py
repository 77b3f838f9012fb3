"""Times and sizes as people write them: `7d`, `100GiB`, `unlimited`. Units are never guessed."""

from __future__ import annotations

import re

from kafka_formats.errors import InvalidRequest

UNLIMITED = "unlimited"
QUANTITY_MAX = 2**63 - 1

_TIMES = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZES = {"B": 1} | {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", 1)}
_WRITTEN = re.compile(r"([0-9]{1,19})([A-Za-z]*)")
_SHOWN_MAX = 40
_TIMES_TEXT = "7d, 36h, 90m, 30s or 500ms"
_SIZES_TEXT = "100GiB, 512MiB or 1TiB (powers of 1024)"
_OR_NONE = f", or `{UNLIMITED}`"


def parse_time_ms(text: str, *, field: str) -> int | None:
    """`36h` -> milliseconds, `unlimited` -> None. InvalidRequest says how to write it."""
    return None if text == UNLIMITED else _parse(text, _TIMES, _TIMES_TEXT, _OR_NONE, field)


def parse_wait_ms(text: str, *, field: str) -> int:
    """A time that must not be `unlimited`, in milliseconds. InvalidRequest as above."""
    return _parse(text, _TIMES, _TIMES_TEXT, "", field)


def parse_size_bytes(text: str, *, field: str) -> int | None:
    """`100GiB` -> bytes, `unlimited` -> None. InvalidRequest says how to write it."""
    return None if text == UNLIMITED else _parse(text, _SIZES, _SIZES_TEXT, _OR_NONE, field)


def time_text(time_ms: int | None) -> str:
    """A time as `parse_time_ms` reads it, in the largest unit up to days that leaves no
    fraction.
    """
    if time_ms is None:
        return UNLIMITED
    units = [unit for unit in ("d", "h", "m", "s") if time_ms % _TIMES[unit] == 0]
    unit = units[0] if units and time_ms else "ms"
    return f"{time_ms // _TIMES[unit]}{unit}"


def size_text(size_bytes: int | None) -> str:
    """A size as `parse_size_bytes` reads it, in the largest unit that leaves no fraction."""
    if size_bytes is None:
        return UNLIMITED
    units = [unit for unit in reversed(_SIZES) if size_bytes % _SIZES[unit] == 0]
    unit = units[0] if size_bytes else "B"
    return f"{size_bytes // _SIZES[unit]}{unit}"


def _parse(text: str, units: dict[str, int], examples: str, or_none: str, field: str) -> int:
    written = _WRITTEN.fullmatch(text)
    if written is None or written[2] not in units:
        raise InvalidRequest(
            f"{text[:_SHOWN_MAX]!r} is not understood: write {examples}{or_none}", field=field
        )
    quantity = int(written[1]) * units[written[2]]
    if quantity > QUANTITY_MAX:
        raise InvalidRequest(
            f"{text[:_SHOWN_MAX]!r} is too large: write less{or_none}", field=field
        )
    return quantity
