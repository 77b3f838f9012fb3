"""Copying: the choice of the next segment, and the steps of one copy.

| Step | File |
|---|---|
| scans of the log directories | `look_loop.py`, `scanner.py` |
| leaderships, and the facts of a decision on one | `leadership_watch.py`, `leadership_facts.py` |
| partitions of a broker whose disk this node does not see | `told_partitions.py` |
| uncopied segments kept from local retention | `hold.py`, `hold_pass.py` |
| ... active segments, which time retention deletes before they are sealed | `active_hold.py` |
| all partitions, and the memory of one | `work_table.py`, `partition_work.py` |
| ... the task of one partition, and its parts | `partition_driver.py`, `driver_parts.py` |
| the next step, or the reason for a wait | `copy_plan.py` |
| a slot, the order, one attempt | `copy_slots.py`, `copy_order.py`, `copier.py` |
| a damaged segment repaired from the other replicas | `mending.py`, `replica_*.py` |
| status and lag | `partition_status.py`, `lag.py` |
"""
