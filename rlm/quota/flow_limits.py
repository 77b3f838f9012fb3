"""Limits on the bytes moved to and from the stores, and the form in which workers get them.

Pure. A worker asks for limited bytes `quantum_bytes` at a time, and sends at most `sends_max`
request bodies at once: with many more beside it, a body would be too slow for its deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import check_topic_name

MIB = 2**20
LIMIT_BYTES_PER_S_MIN = MIB
"""The lowest limit: below it one part of an upload would exceed a request's deadline."""

LIMITED_TOPICS_MAX = 1_000
GRANTS_PER_S = 10
QUANTUM_BYTES_MAX = MIB
BODY_S = 30.0
"""The seconds that a body should take at a limited rate; a request's deadline is 4 times that."""


class Flow(StrEnum):
    """A direction. The values are stable: metrics use them."""

    COPY = "copy"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes per second; None: no limit. `copy` to the stores, `read` from them."""

    copy_bytes_per_s: int | None = None
    read_bytes_per_s: int | None = None

    def of(self, flow: Flow) -> int | None:
        return self.copy_bytes_per_s if flow is Flow.COPY else self.read_bytes_per_s


NO_LIMIT = Rates()


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The node's limits, and those of single topics within them."""

    node: Rates = NO_LIMIT
    topics: Mapping[str, Rates] = field(default_factory=dict)

    def check(self, *, part_bytes: int, workers: int) -> None:
        """Raise InvalidRequest for a limit that cannot be kept."""
        if len(self.topics) > LIMITED_TOPICS_MAX:
            raise InvalidRequest(
                f"at most {LIMITED_TOPICS_MAX} topics can have limits of their own", field="topics"
            )
        for topic in self.topics:
            check_topic_name(topic)
        least = least_kept(part_bytes, workers)
        for rates in (self.node, *self.topics.values()):
            for flow in Flow:
                rate, bound = rates.of(flow), least[flow]
                if rate is not None and rate < bound:
                    raise InvalidRequest(
                        f"{rate} bytes a second are too few: at least {bound}, or one part of "
                        f"{part_bytes} bytes takes longer than a request may; to stop altogether, "
                        "pause copying",
                        field=f"{flow.value}_bytes_per_s",
                    )

    def kept(self, *, part_bytes: int, workers: int) -> FlowLimits:
        """The limits, with each one that is too low to be kept raised to the lowest that can be
        kept.
        """
        least = least_kept(part_bytes, workers)

        def raised(rates: Rates) -> Rates:
            of = {flow: rates.of(flow) for flow in Flow}
            copy, read = (
                None if rate is None else max(rate, least[flow]) for flow, rate in of.items()
            )
            return Rates(copy, read)

        return FlowLimits(
            raised(self.node), {name: raised(each) for name, each in self.topics.items()}
        )


def least_kept(part_bytes: int, workers: int) -> dict[Flow, int]:
    """The lowest limits, in bytes per second, at which no request exceeds its deadline."""
    copy = max(LIMIT_BYTES_PER_S_MIN, round(part_bytes * workers / BODY_S))
    return {Flow.COPY: copy, Flow.READ: LIMIT_BYTES_PER_S_MIN}


@dataclass(frozen=True, slots=True)
class Pace:
    """A limit in the form in which a worker applies it."""

    quantum_bytes: int
    sends_max: int


@dataclass(frozen=True, slots=True)
class Paces:
    """All limits in the form in which a worker applies them; other topics are not limited."""

    node: Mapping[Flow, Pace] = field(default_factory=dict)
    topics: Mapping[tuple[Flow, str], Pace] = field(default_factory=dict)


def paces(limits: FlowLimits, *, part_bytes: int, workers: int) -> Paces:
    """The limits for a worker; `part_bytes` is the largest body, `workers` share each limit."""

    def pace(rate: int) -> Pace:
        sends = int(rate * BODY_S / (part_bytes * workers))
        return Pace(min(rate // GRANTS_PER_S, QUANTUM_BYTES_MAX), max(1, sends))

    node = {flow: pace(rate) for flow in Flow if (rate := limits.node.of(flow)) is not None}
    topics = {
        (flow, topic): pace(rate)
        for topic, rates in limits.topics.items()
        for flow in Flow
        if (rate := rates.of(flow)) is not None
    }
    return Paces(node, topics)


def least_rate(limits: FlowLimits, flow: Flow, topic: str) -> int | None:
    """The lowest limit on a topic's bytes, per second; None without one."""
    rates = (limits.node.of(flow), limits.topics.get(topic, NO_LIMIT).of(flow))
    return min((rate for rate in rates if rate is not None), default=None)
