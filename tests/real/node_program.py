"""The `strandline` command with all that a node with stores, brokers and a quorum imports and
prepares, which takes two seconds of CPU, and what other commands import: for
`tests.real.fork_server`.
"""

from __future__ import annotations

from importlib import import_module

from kafka_listener.protocol import codec
from rlmm.wire import frames
from strandline.cli.main import main

__all__ = ["main"]

for _module in (
    "aiobotocore.session",
    "kafka_client.connection",
    "rlmm.wire.listener",
    "rlmm.wire.peers",
    "rsm_backends.s3",
    "strandline.cli.asking",
    "strandline.cli.copy_command",
    "strandline.cli.node_commands",
    "strandline.cli.run_command",
    "uvicorn.lifespan.off",
):
    import_module(_module)
frames.load_schemas()
codec.load_schemas()
