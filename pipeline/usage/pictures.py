"""Draws the pictures of a usage report, without a screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from io import BytesIO
from math import floor, log10
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from pipeline.usage.tier_usage import AGES, Projection, TopicUsage, human_bytes

TOPICS_SHOWN_MAX = 15
LABEL_CHARACTERS_MAX = 32
DPI = 144
PADDING_INCHES = 0.15
AGE_COLOURS = ("#0b3c5d", "#1d6a96", "#4d9bbf", "#8cc0cf", "#c9dcd8", "#e6d5b8")
PRICE_COLOURS = ("#1d6a96", "#e09f3e", "#9e2a2b")
_DATES: Any = AutoDateLocator
_DATE_TEXTS: Any = ConciseDateFormatter
"""matplotlib has no types for these two."""

INK, GRID = "#22303c", "#dfe5e8"
STYLE: Any = {
    "font.size": 10, "axes.edgecolor": GRID, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "axes.titlesize": 13, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "xtick.color": INK, "ytick.color": INK, "text.color": INK, "text.parse_math": False,
    "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip


def topics_picture(usages: Sequence[TopicUsage]) -> bytes:
    """Draw the largest topics as a PNG, each bar by age."""
    shown = list(usages[:TOPICS_SHOWN_MAX])
    rest = usages[TOPICS_SHOWN_MAX:]
    names = [_short(each.topic) for each in shown]
    by_age = [each.bytes_by_age for each in shown]
    if rest:
        names.append(f"{len(rest)} more")
        by_age.append(tuple(map(sum, zip(*(each.bytes_by_age for each in rest), strict=True))))
    with rc_context(STYLE):
        figure, axes = _figure(9, 1.9 + 0.38 * len(names))
        rows = range(len(names))  # by number: two long names may be shortened to one
        left = [0.0] * len(names)
        for age, (label, _) in enumerate(AGES):
            widths = [each[age] for each in by_age]
            axes.barh(rows, widths, left=left, height=0.68, color=AGE_COLOURS[age], label=label)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.set_yticks(rows, names)
        for row, end in zip(rows, left, strict=True):
            axes.annotate(
                human_bytes(end), (end, row), xytext=(6, 0), textcoords="offset points",
                va="center", fontsize=9,
            )  # fmt: skip
        axes.set_ylim(len(names) - 0.4, -0.6)  # the largest on top
        axes.margins(x=0.14)
        _byte_ticks(axes.xaxis, max(left))
        axes.grid(axis="x", color=GRID)
        axes.set_axisbelow(True)
        axes.set_title("Bytes in the tier, by topic and age", pad=14)
        figure.legend(
            ncols=len(AGES), loc="outside lower center", frameon=False, fontsize=9,
            handlelength=1.0, columnspacing=1.4,
        )  # fmt: skip
        return _png(figure)


def growth_picture(days: Sequence[tuple[date, int]]) -> bytes:
    """Draw the sum of present bytes by the day of their write, as a PNG."""
    with rc_context(STYLE):
        figure, axes = _figure(9, 3.6)
        dates: list[Any] = [day for day, _ in days]
        total, sums = 0, []
        for _, size in days:
            total += size
            sums.append(total)
        if len(dates) == 1:  # a line of one day
            axes.plot(dates, sums, marker="o", color=AGE_COLOURS[1])
        else:
            axes.fill_between(dates, sums, step="post", color=AGE_COLOURS[2], alpha=0.35)
            axes.step(dates, sums, where="post", color=AGE_COLOURS[1], linewidth=1.8)
        locator = _DATES(minticks=3, maxticks=8)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(_DATE_TEXTS(locator))
        _byte_ticks(axes.yaxis, total)
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color=GRID)
        axes.set_axisbelow(True)
        axes.set_title("Bytes in the tier, by day of write", pad=14)
        return _png(figure)


def price_picture(projected: Sequence[Projection], currency: str) -> bytes:
    """Draw a month's price, now and later, by storage, writes and reads, as a PNG."""
    with rc_context(STYLE):
        figure, axes = _figure(9, 3.6)
        names = [
            "now" if each.months == 0 else f"in {each.months} month{'s' * (each.months > 1)}"
            for each in projected
        ]
        bottom = [0.0] * len(names)
        parts = (
            ("storage", [each.storage_price for each in projected]),
            ("writes", [each.put_price for each in projected]),
            ("reads", [each.read_price for each in projected]),
        )
        for (label, heights), colour in zip(parts, PRICE_COLOURS, strict=True):
            if any(heights) or label == "storage":
                axes.bar(names, heights, bottom=bottom, width=0.55, color=colour, label=label)
                bottom = [a + b for a, b in zip(bottom, heights, strict=True)]
        for name, top in zip(names, bottom, strict=True):
            axes.annotate(
                f"{top:,.2f}", (name, top), xytext=(0, 4), textcoords="offset points",
                ha="center", fontsize=9,
            )  # fmt: skip
        axes.margins(y=0.18)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.grid(axis="y", color=GRID)
        axes.set_axisbelow(True)
        axes.set_ylabel(f"{currency} a month")
        axes.set_title("Price of a month, if writes continue and nothing expires", pad=14)
        if any(bottom):
            axes.legend(frameon=False, loc="upper left", ncols=3)
        return _png(figure)


def _byte_ticks(axis: Any, most: float) -> None:
    """Set ticks at round numbers of the unit that fits the largest value."""
    unit, name = 1, "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if most < 2 * unit * 1024:
            break
        unit, name = unit * 1024, larger
    step = 10 ** floor(log10(max(most / unit, 1) / 4))
    step *= next(each for each in (1, 2, 5, 10) if most / unit / (step * each) <= 6)
    axis.set_major_locator(MultipleLocator(step * unit))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / unit:,g} {name}"))


def _short(topic: str) -> str:
    if len(topic) <= LABEL_CHARACTERS_MAX:
        return topic
    half = LABEL_CHARACTERS_MAX // 2
    return f"{topic[: half - 1]}…{topic[-half:]}"


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), dpi=DPI)
    figure.set_layout_engine("constrained", w_pad=PADDING_INCHES, h_pad=PADDING_INCHES)
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _png(figure: Figure) -> bytes:
    out = BytesIO()
    figure.savefig(out, format="png", facecolor="white")
    return out.getvalue()
