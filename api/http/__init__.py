"""The stages of every request: gate, admission, limits, streams, errors and their status.

| Step | File |
|---|---|
| id, deadlines, bounds, the last handler of errors | `gate.py`, `api_limits.py` |
| token, and the role that the route requires (`require`) | `admission.py`, `tokens.py` |
| ... a token before the body is read | `admitted_bodies.py` |
| parts of the node, as routes use them | `context.py` |
| a request forwarded to the node that can answer | `forwarding.py` |
| ... answered by the node that receives it | `vouched_requests.py` |
| a view of the whole cluster (`api/routes/cluster_views.py`): all nodes asked | `asking_all.py` |
| ... their parts merged | `merging.py` |
| a body from a worker, through this process | `streaming.py` |
| ... sent by the worker itself | `direct_answer.py` |
| an error's kind, status and problem document | `errors.py` |

A route that names no role requires `read`; `api/app.py` sets that.
"""
