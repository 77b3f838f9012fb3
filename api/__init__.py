"""The HTTP interface: FastAPI application, routes, wire models, error mapping.

| Step of a request | Where |
|---|---|
| the server; one connection, its deadlines and bounds | `server.py`, `connection.py` |
| the application; the busiest requests, answered before FastAPI | `app.py`, `quick_*.py` |
| gate, token and role, limits; forwarding to other nodes | `http/` |
| the route, one file a subject, which names the role it requires | `routes/` |
| the answer's model, one file a subject, from our dataclasses | `models/` |
| the error's kind, status and problem document | `http/errors.py` |
| metrics of the node | `metrics/` |
| the page of `/ui`, in TypeScript | `ui/src/` |

`ui/build.py` builds the page into `ui/dist`, which wheels carry (ADR 9).
"""
