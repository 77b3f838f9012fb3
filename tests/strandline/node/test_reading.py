"""A node that is to be a read replica and can't."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from api.metrics.read import ReadMetrics
from kafka_formats.errors import InvalidRequest
from kafka_listener.virtual_nodes import REPLICA_IDS
from strandline.node.node import Node
from strandline.node.reading import ReadReplica
from strandline.settings.read import ReadSettings


async def test_a_node_id_that_no_virtual_node_is_made_of_is_refused_before_it_listens() -> None:
    node = SimpleNamespace(
        settings=SimpleNamespace(read=ReadSettings(listen="127.0.0.1:19092")),
        directory=SimpleNamespace(node_id=REPLICA_IDS),
    )
    with pytest.raises(InvalidRequest, match=f"below {REPLICA_IDS}") as refused:
        async with ReadReplica().serving(cast(Node, node), cast(ReadMetrics, None)):
            raise AssertionError("it serves")
    assert refused.value.field == "read.listen"
