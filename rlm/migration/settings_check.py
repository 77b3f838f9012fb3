"""Checks that the metadata topic keeps its records for ever."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_client import broker_requests
from kafka_client.broker_requests import BrokerError
from kafka_client.connection import Connection
from kafka_formats.errors import RetryLater
from rlm.leadership.broker_view import BrokerView
from rlm.leadership.leadership import NoAnswer
from rlm.migration.topic_checks import TOPIC, Check

CONFIG_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes")
_FOR_EVER = "-1"


async def checked_settings(view: BrokerView) -> Check:
    """The check of the topic's configs from the broker. Raises RetryLater if it does not answer."""

    async def ask(connection: Connection) -> dict[str, dict[str, str] | BrokerError]:
        return await broker_requests.topic_configs(connection, [TOPIC], CONFIG_KEYS)

    answer = await view.ask(ask)
    if isinstance(answer, NoAnswer):
        raise RetryLater(answer.reason)
    return check_settings(answer.get(TOPIC, BrokerError("unknown_topic_or_partition")))


def check_settings(configs: Mapping[str, str] | BrokerError) -> Check:
    """Check that the topic's configs keep every record for ever."""
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
            "in the store. Correct them with kafka-configs, then see the next checks",
        )
    return Check(name, True, "records are kept for ever")
