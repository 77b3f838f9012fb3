"""A check that this node's broker knows the newest leaders of the metadata topic.

A broker that was cut off from its controller goes on as leader of what it led, for those who don't
know better, and gives an older end of the partition than its successor: what was written since
would not be imported. Nobody writes by now, so it is enough that no broker that lives, of which
each successor is one, knows of a newer leader than the node's own broker.
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
    """Ask each broker that `own`, the answer of the node's broker, tells of. RetryLater: that
    answer is old, or a broker does not tell; without `of_all` such a one is passed over. So is one
    of `gone`, where brokers were once, that `own` does not tell of.
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
                f"what this node's broker knows of {TOPIC} may be old, by broker {node_id}: {why}"
            )


async def _check_gone(
    view: BrokerView, own: TopicLeaders, node_id: int, address: tuple[str, int]
) -> None:
    """Check that a broker is gone which does not live by the word of this node's own. RetryLater if
    it answers: this node's broker is wrong about it then, or about more.
    """
    try:
        async with asyncio.timeout(GONE_DEADLINE_S):
            told = await _asked(view, node_id, *address)
    except (RetryLater, TimeoutError):
        return
    why = None if isinstance(told, BrokerError) else why_old(own, told)
    if why is not None:
        raise RetryLater(
            f"broker {node_id} answers, and does not live by the word of this node's broker: {why}"
        )


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
            f"broker {node_id} at {host}:{port} can't be asked who leads {TOPIC}: {error}"
        ) from error


def why_old(own: TopicLeaders, other: TopicLeaders) -> str | None:
    """Something that another broker knows and `own` does not; None: nothing newer."""
    if other.topic_id != own.topic_id:
        return f"it knows it by another id, {other.topic_id} instead of {own.topic_id}"
    if len(other.leaders) > len(own.leaders):
        return f"it knows {len(other.leaders)} partitions instead of {len(own.leaders)}"
    for node_id in sorted(other.addresses.keys() - own.addresses.keys()):
        return f"it knows the broker {node_id}, too"
    for partition, epoch in sorted(other.epochs.items()):
        known = own.epochs.get(partition, -1)
        if epoch > known:
            return (
                f"it knows leader {other.leaders[partition]} of partition {partition} in epoch "
                f"{epoch}, not {own.leaders.get(partition)} in epoch {known}"
            )
    return None
