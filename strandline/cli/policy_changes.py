"""A topic's policy over HTTP: where it is, and changing a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.cli.client import NodeClient
from strandline.cli.query_answers import topic_path

FIELDS = (
    "retention_ms", "retention_bytes", "copy_paused", "delete_paused", "follow_delete_records",
)  # fmt: skip


def policy_path(topic: str) -> str:
    return f"{topic_path(topic)}/policy"


def standing_policy(client: NodeClient, topic: str) -> Any:
    """As it was set, for whichever topic of the name: what changes a switch keeps all else of it.
    A retention that was set for a topic made before stays that one's.
    """
    policy = client.get(policy_path(topic))
    if policy["set_for"] in (None, policy["topic_id"]):
        return policy
    return client.get(policy_path(topic), topic_id=policy["set_for"])


def changed_policy(policy: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, object]:
    """The whole policy with some fields changed; the node takes only whole ones."""
    return {name: policy[name] for name in FIELDS} | dict(changes)


def change_policy(
    client: NodeClient, policy: Mapping[str, Any], changes: Mapping[str, object], why: str = ""
) -> Any:
    """Conflict: somebody changed it since `policy` was read. `why` stands in the audit."""
    body = changed_policy(policy, changes) | {
        "replaces_offset": policy["offset"], "topic_id": policy["topic_id"], "why": why,
    }  # fmt: skip
    return client.change("PUT", policy_path(policy["topic"]), body)
