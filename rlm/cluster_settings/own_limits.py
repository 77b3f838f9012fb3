"""The rate limits that a node is given for itself, beside those that the cluster's settings rule.
Pure.
"""

from __future__ import annotations

from kafka_formats.errors import Conflict
from rlm.cluster_settings.known_settings import RATES
from rlm.cluster_settings.resolver import Resolver
from rlm.quota.flow_limits import NO_LIMIT, Flow, FlowLimits, Rates


def own_limits(
    asked: FlowLimits, own: FlowLimits, in_force: FlowLimits, resolver: Resolver, node_id: int
) -> FlowLimits:
    """`asked` whole limits of a node, without those that a setting of the cluster rules: these stay
    as `own` has them. Conflict: another value than the one `in_force` is asked for such a limit.
    """

    def rates(topic: str | None) -> Rates:
        asked_for, before, now = (_of(each, topic) for each in (asked, own, in_force))
        chosen: dict[Flow, int | None] = {}
        for flow, setting in RATES.items():
            row = resolver.rate_row(setting, node_id, topic)
            if row is None:
                chosen[flow] = asked_for.of(flow)
                continue
            if asked_for.of(flow) != now.of(flow):
                raise Conflict(
                    f"{setting} is set for {row.scope} in the settings of the cluster, at metadata "
                    f"offset {row.offset} by {row.who}, and wins: change or remove it there "
                    "(`strandline settings list`)"
                )
            chosen[flow] = before.of(flow)
        return Rates(chosen[Flow.COPY], chosen[Flow.READ])

    topics = {name: rates(name) for name in sorted({*asked.topics, *own.topics, *in_force.topics})}
    return FlowLimits(
        rates(None), {name: each for name, each in topics.items() if each != NO_LIMIT}
    )


def _of(limits: FlowLimits, topic: str | None) -> Rates:
    return limits.node if topic is None else limits.topics.get(topic, NO_LIMIT)
