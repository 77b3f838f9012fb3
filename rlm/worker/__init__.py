"""Worker processes: the process, its supervisor's side, and their messages.

| Step of a job | File |
|---|---|
| the supervisor's calls; one live worker, one call | `pool.py`, `handle.py`, `call.py` |
| messages between the two, and open files that are lent | `messages.py`, `descriptor_channel.py` |
| a node and a worker of different releases told apart | `message_shapes.py` |
| the process, and one job in it | `worker.py`, `job.py` |
| a body sent to the client by the worker itself | `waiting_read.py`, `client_send.py` |
| a scanning Kafka client's next requests, without the supervisor | `further_answers.py` |

The work itself is in `rlm/data_plane/`. A client's next requests are recognized by their bytes
(`rlm/data_plane/further_requests.py`).
"""
