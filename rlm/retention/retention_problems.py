"""Problems of the node that its retention reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.retention.acceptance import Acceptance

FAILS = "fails"
"""The name of the problem of passes that fail."""
HELD = "held"
"""The name of the problem of holds, which restores from the trash set."""


def retention_problems(
    stopped: Mapping[TopicIdPartition | None, str],
    accepted: Mapping[TopicIdPartition, Acceptance],
    failing: Mapping[TopicIdPartition, str],
    held: Mapping[TopicIdPartition, str],
) -> tuple[NodeProblem, ...]:
    """A problem for each brake and acceptance, one for all holds, and one for all failures."""
    found = [
        NodeProblem(ProblemArea.RETENTION, None if tip is None else str(tip), text)
        for tip, text in stopped.items()
    ]
    found += (
        NodeProblem(ProblemArea.RETENTION, f"{tip}, accepted", each.text)
        for tip, each in accepted.items()
    )
    if held:
        text = f"it takes nothing: of {_first_of(held)}"
        found.append(NodeProblem(ProblemArea.RETENTION, HELD, text))
    if failing:
        text = f"it fails and is repeated with each pass: of {_first_of(failing)}"
        found.append(NodeProblem(ProblemArea.RETENTION, FAILS, text))
    return tuple(found)


def _first_of(texts: Mapping[TopicIdPartition, str]) -> str:
    """The number of partitions, and the text of the first."""
    tip = min(texts, key=lambda each: (each.topic, each.partition))
    some = "1 partition" if len(texts) == 1 else f"{len(texts)} partitions, for example"
    return f"{some} {tip.topic}-{tip.partition}: {texts[tip]}"
