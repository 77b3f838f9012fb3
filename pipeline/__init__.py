"""The tiered history on Spark: a data source, and jobs that never touch a broker.

| Part | Folder |
|---|---|
| the data source: options, offsets, plans | `source/` |
| segments as readers see them | `catalogue/` |
| a segment's objects read in a task, and made Arrow columns | `read/`, `decode/` |
| the jobs | `jobs/` |
| ... the work of each | `export/`, `restore/`, `rebuild/`, `reconcile/`, `usage/` |
| buckets as tasks read them | `stores/`, `listing/` |
| sessions and Python workers | `spark/` |
| the process that `strandline pipeline` starts | `cli/`, `process/` |
"""
