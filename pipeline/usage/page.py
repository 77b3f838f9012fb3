"""The usage report as one HTML file, which loads nothing; labels are escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from pipeline.usage.prices import Prices
from pipeline.usage.tier_usage import (
    AGES,
    PROJECTED_MONTHS,
    Projection,
    TopicUsage,
    human_bytes,
    projections,
)

TOPICS_IN_TABLE_MAX = 500
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#22303c;background:#f6f8f8;margin:0}
main{max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .6rem}
.cards{display:flex;flex-wrap:wrap;gap:1rem;margin:1.4rem 0}
.card{background:#fff;border:1px solid #dfe5e8;border-radius:8px;padding:.7rem 1.1rem;flex:1}
.card b{display:block;font-size:1.35rem;white-space:nowrap}
.card span,.note{color:#5d6d78;font-size:.85rem}
img{width:100%;background:#fff;border:1px solid #dfe5e8;border-radius:8px;margin-bottom:1rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;background:#fff;font-size:.88rem}
th,td{padding:.35rem .6rem;border-bottom:1px solid #dfe5e8;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere;white-space:normal}
th{color:#5d6d78;font-weight:600}
"""


def usage_page(
    usages: Sequence[TopicUsage],
    projected: Sequence[Projection],
    prices: Prices,
    pictures: Mapping[str, bytes],
    *,
    made_at: str,
    where: str,
) -> str:
    """The page. `pictures`: name and PNG of each. `where` is the store's address."""
    now = projected[0]
    cards = (
        (human_bytes(now.size_bytes), "in the bucket"),
        (f"{sum(each.segments for each in usages):,}", "segments"),
        (f"{sum(each.objects for each in usages):,}", "objects"),
        (f"{now.price:,.2f} {prices.currency}", "a month like the last one"),
    )
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>Tier usage</title><style>{_STYLE}</style></head><body><main>",
            f'<h1>Tier usage</h1><p class="note">{escape(where)} &middot; {escape(made_at)}</p>',
            '<div class="cards">',
            *(
                f'<div class="card"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
                for value, label in cards
            ),
            "</div>",
            *(_picture(name, data) for name, data in pictures.items()),
            "<h2>By topic</h2>",
            _topics(usages, prices),
            "<h2>By age</h2>",
            _ages(usages, prices),
            "<h2>Projection</h2>",
            _projection(projected, prices),
            f'<p class="note">Prices: {escape(prices.source)}, as of {escape(prices.as_of)}. '
            f"{prices.storage_gib_month:g} a GiB and month, {prices.put_1000:g} a thousand writes, "
            f"{prices.get_1000:g} a thousand reads, {prices.egress_gib:g} a GiB read, in "
            f"{escape(prices.currency)}. Age is the time since an object was written; writes are "
            "the requests that this took; a month has those of the last 30 days. Prices of topics "
            "and ages are without reads: a bucket does not show which topic is read.</p></main>"
            "</body></html>\n",
        )
    )


def _picture(name: str, data: bytes) -> str:
    source = base64.b64encode(data).decode()
    return f'<img alt="{escape(name, quote=True)}" src="data:image/png;base64,{source}">'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{cells}</tr>{body}</table></div>'


def _topics(usages: Sequence[TopicUsage], prices: Prices) -> str:
    head = [
        "topic", "size", "objects", "segments", "writes in 30 days", *(name for name, _ in AGES),
        f"{prices.currency} a month", f"the same in {PROJECTED_MONTHS[-1]} months",
    ]  # fmt: skip
    rows = [
        [
            each.topic,
            human_bytes(each.size_bytes),
            f"{each.objects:,}",
            f"{each.segments:,}",
            f"{each.recent_puts:,}",
            *(human_bytes(size) if size else "" for size in each.bytes_by_age),
            f"{each.price:,.2f}",
            f"{projections([each], prices)[-1].price:,.2f}",
        ]
        for each in usages[:TOPICS_IN_TABLE_MAX]
    ]
    more = len(usages) - TOPICS_IN_TABLE_MAX
    note = f'<p class="note">and {more} smaller topics</p>' if more > 0 else ""
    return _table(head, rows) + note


def _ages(usages: Sequence[TopicUsage], prices: Prices) -> str:
    rows = [
        [
            name,
            human_bytes(sum(each.bytes_by_age[age] for each in usages)),
            f"{sum(each.objects_by_age[age] for each in usages):,}",
            f"{sum(each.puts_by_age[age] for each in usages):,}",
            f"{sum(each.price_by_age[age] for each in usages):,.2f}",
        ]
        for age, (name, _) in enumerate(AGES)
    ]
    return _table(["age", "size", "objects", "writes", f"{prices.currency} a month"], rows)


def _projection(projected: Sequence[Projection], prices: Prices) -> str:
    return _table(
        ["in months", "size", "storage", "writes", "reads", f"{prices.currency} a month"],
        [
            [
                str(each.months),
                human_bytes(each.size_bytes),
                f"{each.storage_price:,.2f}",
                f"{each.put_price:,.2f}",
                f"{each.read_price:,.2f}",
                f"{each.price:,.2f}",
            ]
            for each in projected
        ],
    )
