"""Several fake nodes that hand requests to each other as real ones do, but for the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx

from api.http.api_limits import ApiLimits
from api.http.tokens import Role, TokenBook
from api.http.vouched_requests import VouchedRequests
from kafka_formats.kafka_uuid import Uuid
from rlmm.quorum.envelopes import Envelope
from rlmm.records.node_facts import NodeFacts
from rlmm.rows.nodes import Liveness, RegisteredNode
from tests.api.fakes import FakeNode, make_node

Answers = Callable[[Envelope], Awaitable[bytes]]


class FakeCluster:
    """Nodes 1 to `count`. `answers` has a stand-in for what a node answers to an envelope; `sent`
    are the nodes that were sent one.
    """

    def __init__(
        self, count: int = 3, limits: ApiLimits | None = None, tokens: TokenBook | None = None
    ) -> None:
        anonymous = Role.ADMIN if tokens is None else None
        self.nodes: dict[int, FakeNode] = {}
        self.vouched: dict[int, VouchedRequests] = {}
        self.answers: dict[int, Answers] = {}
        self.sent: list[int] = []
        for node_id in range(1, count + 1):
            node = make_node(limits=limits, tokens=tokens, anonymous_role=anonymous)
            identity = replace(node.context.identity, node_id=node_id)
            node.context = replace(node.context, identity=identity)
            node.context.envelopes.send = self._send
            node.manager.applied_offset = 100 + node_id
            self.nodes[node_id] = node
            self.vouched[node_id] = VouchedRequests(node.app(), identity)
        self.register()

    def register(self, **changes: Any) -> None:
        """`n2={"liveness": Liveness.FENCED}` registers node 2 so."""
        registered = tuple(
            replace(
                RegisteredNode(
                    id_, Uuid(b"a directory.... "), 1, 1, 1, 1,
                    facts=NodeFacts(http=f"http://n{id_}:9480", quorum=f"n{id_}:9481"),
                ),
                **changes.get(f"n{id_}", {}),
            )
            for id_ in self.nodes
        )  # fmt: skip
        for node in self.nodes.values():
            node.manager.nodes = registered

    async def _send(self, address: tuple[str, int], envelope: Envelope, deadline_s: float) -> bytes:
        node_id = int(address[0].removeprefix("n"))
        assert address == (f"n{node_id}", 9481)
        self.sent.append(node_id)
        return await self.answers.get(node_id, self.vouched[node_id].answer)(envelope)

    async def ask(self, path: str, asked: int = 1, token: str | None = None, **params: Any) -> Any:
        """The JSON of a GET at node `asked`."""
        answer = await self.answer(path, asked, token, **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def answer(
        self, path: str, asked: int = 1, token: str | None = None, **params: Any
    ) -> httpx.Response:
        """A GET at node `asked`."""
        async with self.nodes[asked].client(token=token) as client:
            return await client.get(path, params=params)

    def counted(self, outcome: str, asked: int = 1) -> float | None:
        """Parts of views that node `asked` counted so."""
        return self.nodes[asked].context.metrics.registry.get_sample_value(
            "strandline_http_nodes_asked_total", {"outcome": outcome}
        )


def liveness(word: Liveness) -> dict[str, Liveness]:
    """A change for `register`."""
    return {"liveness": word}
