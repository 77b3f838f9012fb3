"""Checks that this node's broker knows the newest leaders of the metadata topic.

A broker that is cut off from its controller still answers as the leader of its partitions, with an
older end than its successor, and records written since would not be imported. All brokers have
stopped writing by now, so it is enough that no live broker knows a newer leader than the node's own
broker: each successor is a live broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kafka_client.broker_requests import BrokerError
from kafka_client.topic_leaders import TopicLeaders, topic_leaders
from kafka_formats.errors import RetryLater, StrandlineError
from rlm.leadership.broker_view import BrokerView
from rlm.migration.topic_checks import TOPIC

GONE_DEADLINE_S = 1.0
NOWHERE: Mapping[int, tuple[str, int]] = {}


async def check_newest(
    view: BrokerView,
    own: TopicLeaders,
    *,
    of_all: bool = True,
    gone: Mapping[int, tuple[str, int]] = NOWHERE,
) -> None:
    """Ask each broker in `own`, the answer of the node's broker. Raises RetryLater if that answer
    is older than that of a different broker, or if a broker does not answer; without `of_all` such
    a broker is skipped. Brokers in `gone` (former brokers with their addresses) that are not in
    `own` are asked too, and skipped if they do not answer.
    """
    await asyncio.gather(
        *(
            _check_gone(view, own, node_id, address)
            for node_id, address in gone.items()
            if node_id not in own.addresses
        )
    )
    for node_id, (host, port) in sorted(own.addresses.items()):
        try:
            told = await _asked(view, node_id, host, port)
        except RetryLater:
            if of_all:
                raise
            continue
        if isinstance(told, BrokerError):
            why = f"it answered {told.name}" if of_all else None
        else:
            why = why_old(own, told)
        if why is not None:
            raise RetryLater(
                f"this node's broker may have old metadata of {TOPIC}, by broker {node_id}: {why}"
            )


async def _check_gone(
    view: BrokerView, own: TopicLeaders, node_id: int, address: tuple[str, int]
) -> None:
    """Check a former broker that is not live by this node's own broker. Raises RetryLater if it
    answers with something newer: then the answer of this node's broker is old.
    """
    try:
        async with asyncio.timeout(GONE_DEADLINE_S):
            told = await _asked(view, node_id, *address)
    except (RetryLater, TimeoutError):
        return
    why = None if isinstance(told, BrokerError) else why_old(own, told)
    if why is not None:
        raise RetryLater(f"broker {node_id} answers, but is not live for this node's broker: {why}")


async def _asked(
    view: BrokerView, node_id: int, host: str, port: int
) -> TopicLeaders | BrokerError:
    try:
        connection = await view.connect_to(node_id, host, port)
        try:
            return await topic_leaders(connection, TOPIC)
        finally:
            connection.abort()
    except StrandlineError as error:
        raise RetryLater(
            f"broker {node_id} at {host}:{port} can't be asked for the leaders of {TOPIC}: {error}"
        ) from error


def why_old(own: TopicLeaders, other: TopicLeaders) -> str | None:
    """A sentence about newer metadata of a different broker that `own` lacks; None if there is
    none.
    """
    if other.topic_id != own.topic_id:
        return f"there its id is {other.topic_id} instead of {own.topic_id}"
    if len(other.leaders) > len(own.leaders):
        return f"there it has {len(other.leaders)} partitions instead of {len(own.leaders)}"
    for node_id in sorted(other.addresses.keys() - own.addresses.keys()):
        return f"it also knows the broker {node_id}"
    for partition, epoch in sorted(other.epochs.items()):
        known = own.epochs.get(partition, -1)
        if epoch > known:
            return (
                f"it knows leader {other.leaders[partition]} of partition {partition} in epoch "
                f"{epoch}, not {own.leaders.get(partition)} in epoch {known}"
            )
    return None
