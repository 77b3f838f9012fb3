"""Worker processes: the process, its supervisor's side, and their messages."""
