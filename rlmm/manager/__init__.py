"""The remote log metadata manager: writes, reads, and following the log."""
