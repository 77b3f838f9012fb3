"""Checks that a node knows the topic of a change, whose name may be mistyped."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from kafka_formats.errors import NotFound
from strandline.cli.client import NodeClient
from strandline.cli.query_answers import topic_path

ON_DISK = ("leader", "follower", "unknown", "not_tiered")
"""Roles of a node whose broker has the partition on its disk: Kafka has the topic."""
AheadOption = Annotated[
    bool, typer.Option("--ahead", help="Allow a topic that this node does not know yet.")
]
TOPICS_COMPARED_MAX = 10_000


def check_topic_known(client: NodeClient, topic: str, *, to_change: bool) -> None:
    """Raise NotFound if the node does not know `topic`, with the most similar name that it
    knows.
    """
    try:
        client.get(topic_path(topic), limit=1)
    except NotFound:
        names = []
        for each in client.pages("/v1/topics", "topics"):
            names.append(each["topic"])
            if len(names) == TOPICS_COMPARED_MAX:
                break
        near = get_close_matches(topic, names, n=1)
        hint = f". Did you mean {near[0]}?" if near else ""
        if not to_change:
            raise NotFound(f"this node knows no topic {topic}{hint}") from None
        raise NotFound(
            f"this node knows no topic {topic}: nothing was changed{hint or '.'} To set it for a "
            "topic before its first segment is tiered, add --ahead"
        ) from None
