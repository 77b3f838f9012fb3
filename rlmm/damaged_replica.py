"""The remedy for a node whose metadata directory is damaged, as all messages name it."""

REPLACE_REPLICA = (
    "where other voters live, replace this one: remove-voter, `strandline format "
    "--no-initial-voters`, add-voter (an observer is formatted only). Where it is the sole voter, "
    "start a new cluster from the newest snapshot, `strandline format --from-snapshot`. Restore no "
    "backup: an older directory has forgotten votes, acknowledgements, and what was copied since"
)
"""Goes behind a colon. A voter that forgot them may elect a leader without acknowledged records."""
