"""Delegated mode: the broker's own remote log manager decides, and this node carries out.

The plug-in in the broker (`broker_plugin/`) asks over HTTP (`api/routes/broker.py`).

| Rule | File |
|---|---|
| bodies of requests and answers | `wire.py`, `phase_bodies.py` |
| its sessions, and the partitions that it announces | `sessions.py`, `plugin.py` |
| answers to its calls about metadata, where a copy's row is accepted | `calls.py` |
| lists of segments; expirations that may not begin | `segment_lists.py`, `expirations.py` |
| ... of a leader that would count twice what is copied | `fresh_leaders.py` |
| where the part that counts as copied ends | `copied_offsets.py` |
| copies that it asks for, where their bytes are; failed ones | `copies.py`, `failed_copies.py` |
| ... of files that it sends, where the node does not see its disk | `sent_files.py`, `spool.py` |
| unfinished copies that are still the broker's | `at_work.py` |
| its reads of segments; segments that a later leader cut | `segment_reads.py`, `diverged_tail.py` |
| ... that wait for a look at a new leader's log | `asked_looks.py` |
| ... the producers' state there | `cut_producers.py` |
| ... that take longer than their call | `late_reads.py` |
| history from before the mode, which a later leader may lack | `older_history.py` |
| deletions that nobody ends; those only the broker can end | `sweeper.py`, `foreign_objects.py` |
| its bridge's question for the phase of a move | `phase_calls.py` |

What a claim needs of a disk that the node does not see: `rlm/copy/told_partitions.py`.
"""
