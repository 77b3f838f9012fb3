"""Worker processes: the process, its supervisor's side, and what they say to each other."""
