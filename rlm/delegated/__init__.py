"""Delegated mode: the broker's own remote log manager decides, and this node carries out.

The plug-in in the broker (`broker_plugin/`) asks over HTTP (`api/routes/broker.py`).

| Rule | File |
|---|---|
| bodies of requests and answers | `wire.py`, `phase_bodies.py` |
| its sessions, and the partitions that it announces | `sessions.py`, `plugin.py` |
| answers to its calls about metadata, where a copy's row is accepted | `calls.py` |
| lists of segments; expirations held back | `segment_lists.py`, `expirations.py` |
| ... while a leader would count copied segments twice | `fresh_leaders.py` |
| the highest offset that the broker may take for copied | `copied_offsets.py` |
| copies that it requests; those that failed | `copies.py`, `failed_copies.py` |
| ... of files that it sends, where the node does not see its disk | `sent_files.py`, `spool.py` |
| unfinished copies that are still the broker's | `at_work.py` |
| its reads of segments; segments that a later leader cut | `segment_reads.py`, `diverged_tail.py` |
| ... that wait for a look at a new leader's log | `asked_looks.py` |
| ... the producer snapshot where they are cut | `cut_producers.py` |
| ... that take longer than their call | `late_reads.py` |
| history from before the mode, which a later leader may lack | `older_history.py` |
| deletions that no node finishes, or only the broker can | `sweeper.py`, `foreign_objects.py` |
| the request of its bridge for the phase of a move | `phase_calls.py` |

For a claim without access to the broker's disk, `rlm/copy/told_partitions.py` asks the broker.
"""
