"""The command line of the jobs: a process of its own, which `strandline pipeline` starts."""
