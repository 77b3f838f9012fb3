"""Reads a topic's policy over HTTP, and changes parts of it."""

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
    """The policy that was last set for this name, perhaps for an earlier topic of it. A change of a
    kill switch has to keep the other parts, and a retention that was set for the earlier topic
    applies only to that topic.
    """
    policy = client.get(policy_path(topic))
    if policy["set_for"] in (None, policy["topic_id"]):
        return policy
    return client.get(policy_path(topic), topic_id=policy["set_for"])


def changed_policy(policy: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, object]:
    """The whole policy with `changes` applied, since the node accepts only whole policies."""
    return {name: policy[name] for name in FIELDS} | dict(changes)


def change_policy(
    client: NodeClient, policy: Mapping[str, Any], changes: Mapping[str, object], why: str = ""
) -> Any:
    """Change the policy; `why` is recorded in the audit log. Raises Conflict if the policy was
    changed since `policy` was read.
    """
    body = changed_policy(policy, changes) | {
        "replaces_offset": policy["offset"], "topic_id": policy["topic_id"], "why": why,
    }  # fmt: skip
    return client.change("PUT", policy_path(policy["topic"]), body)
