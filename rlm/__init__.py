"""Remote log manager: pure planners and the shells that carry their decisions out.

`service.py` is the whole of one node while it runs, put together in
`strandline/node/remote_log.py`.
"""
