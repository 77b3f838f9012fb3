"""Whether a metadata topic keeps its records for ever. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_client.broker_requests import BrokerError
from rlm.migration.topic_checks import TOPIC, Check

CONFIG_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes")
_FOR_EVER = "-1"


def check_settings(configs: Mapping[str, str] | BrokerError) -> Check:
    """Check that the topic keeps every record for ever."""
    name = "settings of the topic"
    if isinstance(configs, BrokerError):
        return Check(
            name,
            False,
            f"the broker answered {configs.name}: give the node's user DescribeConfigs on {TOPIC}",
        )
    wanted = {
        "cleanup.policy": "delete",
        "retention.ms": _FOR_EVER,
        "retention.bytes": _FOR_EVER,
    }
    wrong = [
        f"{key}={configs.get(key)} instead of {value}"
        for key, value in wanted.items()
        if configs.get(key) != value
    ]
    if wrong:
        return Check(
            name,
            False,
            f"{'; '.join(wrong)}: with these the broker removes records of segments that are still "
            "in the store. Set them back with kafka-configs, then look at the next checks",
        )
    return Check(name, True, "records are kept for ever")
