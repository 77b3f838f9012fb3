"""The broker's log directories, and segments kept from them by hard links."""
