"""The broker's log directories as they lie, and segments kept in them by hard links."""
