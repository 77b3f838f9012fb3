"""A store's prices for bytes and requests, from a TOML table. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kafka_formats.errors import InvalidRequest

DEFAULT_PRICES = """\
# Prices of a store. Take the numbers from your own bill or contract; --prices reads such a file.
source = "Amazon S3 Standard, us-east-1, first 50 TB: list price to be checked"
as_of = "2025-01"
currency = "USD"

storage_gib_month = 0.023   # one GiB kept for a month
put_1000 = 0.005            # a thousand PUT, COPY, POST or LIST requests
get_1000 = 0.0004           # a thousand GET and other requests
egress_gib = 0.0            # one GiB read; 0 within the region, 0.09 to the internet
"""

GIB = 2**30
_TEXTS = ("source", "as_of", "currency")
TEXT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in `currency`; `source` and `as_of` name their origin."""

    source: str
    as_of: str
    currency: str
    storage_gib_month: float
    put_1000: float
    get_1000: float
    egress_gib: float

    def storage(self, size_bytes: float) -> float:
        """The price of storage for a month."""
        return size_bytes / GIB * self.storage_gib_month

    def puts(self, requests: float) -> float:
        """The price of this many writes."""
        return requests / 1000 * self.put_1000

    def reads(self, requests: float, size_bytes: float) -> float:
        """The price of this many GETs, with `size_bytes` in all."""
        return requests / 1000 * self.get_1000 + size_bytes / GIB * self.egress_gib


def parse_prices(text: str, *, source: str) -> Prices:
    """The prices in a text; InvalidRequest names a field that is unknown, missing or no price."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{source} is not TOML: {error}", field="--prices") from None
    names = [each.name for each in fields(Prices)]
    unknown = sorted(found.keys() - set(names))
    missing = [name for name in names if name not in found]
    if unknown or missing:
        wrong = unknown[0] if unknown else missing[0]
        raise InvalidRequest(
            f"{source}: {wrong[:60]!r} is {'unknown' if unknown else 'missing'}; the fields are "
            f"{', '.join(names)}",
            field="--prices",
        )
    return Prices(
        source=_text(found["source"], "source"),
        as_of=_text(found["as_of"], "as_of"),
        currency=_text(found["currency"], "currency"),
        storage_gib_month=_number(found["storage_gib_month"], "storage_gib_month"),
        put_1000=_number(found["put_1000"], "put_1000"),
        get_1000=_number(found["get_1000"], "get_1000"),
        egress_gib=_number(found["egress_gib"], "egress_gib"),
    )


def changed(prices: Prices, given: Mapping[str, str]) -> Prices:
    """The prices with changes from the command line, `name=number`."""
    names = [each.name for each in fields(Prices) if each.name not in _TEXTS]
    changes: dict[str, Any] = {}
    for name, text in given.items():
        if name not in names:
            raise InvalidRequest(
                f"{name[:60]!r} is unknown; known are {', '.join(names)}", field="--price"
            )
        try:
            value = float(text)
        except ValueError:
            raise InvalidRequest(
                f"{text[:60]!r} is not a number", field=f"--price {name}"
            ) from None
        changes[name] = _number(value, name)
    if given:
        changes["source"] = f"{prices.source}, with changes"
    return replace(prices, **changes)


def _number(value: object, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise InvalidRequest("must be a number, 0 or more", field=f"--prices {name}")
    return float(value)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
        raise InvalidRequest(f"must be text of at most {TEXT_CHARACTERS_MAX} characters",
                             field=f"--prices {name}")  # fmt: skip
    return value
