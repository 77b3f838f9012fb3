"""The remedy for a node whose metadata directory is damaged, in the words of all messages."""

from __future__ import annotations

from kafka_formats.errors import CorruptData

REPLACE_REPLICA = (
    "where other voters live, replace this one: remove-voter, `strandline format "
    "--no-initial-voters`, add-voter (an observer is formatted only). Where it is the sole voter, "
    "start a new cluster from the newest snapshot that is whole, `strandline format "
    "--from-snapshot`, which lacks all later records. Do not restore a backup: an older directory "
    "lacks later votes, acknowledgements and copies"
)
"""The advice, to follow a colon. A voter that lacks votes and acknowledgements may elect a leader
without acknowledged records.
"""


def needed_snapshot(error: CorruptData, log_start_offset: int) -> CorruptData:
    """The error of a node whose log starts where only this damaged snapshot reaches."""
    return CorruptData(
        f"{error.detail}. The snapshot is damaged, and no other is whole and reaches the log's "
        f"start {log_start_offset}. What to do: {REPLACE_REPLICA}",
        source=error.source,
        position=error.position,
    )
