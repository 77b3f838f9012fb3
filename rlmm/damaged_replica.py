"""The remedy for a node whose metadata directory is damaged, as all messages name it."""

REPLACE_REPLICA = (
    "where other voters live, replace this one: remove-voter, `strandline format "
    "--no-initial-voters`, add-voter (an observer is formatted only). A backup may be restored for "
    "a sole voter alone: an older directory has forgotten votes and acknowledgements"
)
"""Goes behind a colon. A voter that forgot them may elect a leader without acknowledged records."""
