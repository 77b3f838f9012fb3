"""Rights are asked of the client's twin, kept for a while, and for as long as nobody answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from kafka_formats.errors import RetryLater
from kafka_listener.access.login import Login
from kafka_listener.access.rights import (
    ALL,
    NO_RIGHTS,
    NOT_REPORTED,
    ReadableTopics,
    Rights,
    RightsOrError,
)
from kafka_listener.connections.client import Client
from kafka_listener.connections.topic_rights import REFUSAL_KEPT_S, TOPICS_MAX, TopicRights
from rlmm.wire.schema import Values

KEPT_S = 30.0
READ = 1 << 3 | 1 << 8


@dataclass
class Twin:
    """Answers with the `bits` of a topic, or that it may not be heard of."""

    bits: dict[str, int] = field(default_factory=dict)
    login: Login | None = field(default_factory=lambda: Login(0.0))
    reachable: bool = True
    asked: list[list[str]] = field(default_factory=list)
    rights: dict[str, tuple[Rights, float]] = field(default_factory=dict)

    async def ask(self, _api: int, body: Values, *, version_max: int) -> Values:
        if not self.reachable:
            raise RetryLater("away")
        assert body["include_topic_authorized_operations"]
        assert not body["allow_auto_topic_creation"]
        names = [topic["name"] for topic in body["topics"]]
        self.asked.append(sorted(names))
        return {"topics": [self._topic(name) for name in names]}

    def _topic(self, name: str) -> Values:
        if name not in self.bits:
            return {"name": name, "error_code": 29}
        return {"name": name, "error_code": 0, "topic_authorized_operations": self.bits[name]}


class Scene:
    def __init__(self, twin: Twin, given: tuple[str, ...] = ("*",)) -> None:
        self.now = 0.0
        self.twin = twin
        self.rights = TopicRights(lambda: self.now, KEPT_S, ReadableTopics(given))

    async def of(self, *topics: str) -> dict[str, RightsOrError]:
        return await self.rights.of(cast(Client, self.twin), topics)

    async def refused(self, *topics: str) -> dict[str, Any]:
        return await self.rights.refused(cast(Client, self.twin), topics)


async def test_a_right_is_asked_for_again_after_its_time() -> None:
    scene = Scene(Twin({"orders": READ}))
    assert await scene.of("orders") == {"orders": ALL}
    scene.twin.bits.clear()
    scene.now = KEPT_S - 0.1
    assert await scene.of("orders") == {"orders": ALL}
    scene.now = KEPT_S
    assert await scene.of("orders") == {"orders": NO_RIGHTS}
    assert scene.twin.asked == [["orders"]] * 2


async def test_a_refusal_is_kept_for_a_moment() -> None:
    scene = Scene(Twin())
    assert await scene.of("orders") == {"orders": NO_RIGHTS}
    scene.twin.bits["orders"] = READ
    assert await scene.of("orders") == {"orders": NO_RIGHTS}
    scene.now = REFUSAL_KEPT_S
    assert await scene.of("orders") == {"orders": ALL}


async def test_a_broker_that_tells_no_rights_any_more_gives_none() -> None:
    scene = Scene(Twin({"orders": READ}))
    await scene.of("orders")
    scene.twin.bits["orders"], scene.now = NOT_REPORTED, KEPT_S
    assert await scene.of("orders") == {}
    scene.twin.reachable = False
    assert await scene.of("orders") == {}


async def test_while_no_broker_answers_rights_stay_and_no_new_ones_come() -> None:
    scene = Scene(Twin({"orders": READ, "plans": READ}))
    await scene.of("orders")
    scene.twin.reachable, scene.now = False, 10 * KEPT_S
    assert await scene.of("orders", "plans") == {"orders": ALL}
    assert await scene.refused("orders", "plans") == {"plans": 5}


async def test_only_what_is_not_known_is_asked() -> None:
    scene = Scene(Twin({"orders": READ, "plans": 1 << 8}))
    await scene.of("orders")
    await scene.of("orders", "plans")
    assert scene.twin.asked == [["orders"], ["plans"]]
    assert await scene.refused("orders", "plans", "salaries") == {"salaries": 29}


async def test_who_does_not_log_in_reads_what_is_given_and_the_node_may_read() -> None:
    scene = Scene(Twin({"orders": READ, "plans": READ}, login=None), ("orders", "own.*"))
    found = await scene.of("orders", "plans", "own.x")
    assert found == {"orders": ALL, "plans": NO_RIGHTS, "own.x": NO_RIGHTS}
    assert scene.twin.asked == [["orders", "own.x"]]
    scene.twin.reachable, scene.now = False, 10 * KEPT_S
    assert await scene.of("own.x", "own.y", "plans") == {
        "own.x": NO_RIGHTS, "own.y": ALL, "plans": NO_RIGHTS,
    }  # fmt: skip


async def test_the_settings_list_is_not_for_those_who_log_in() -> None:
    scene = Scene(Twin({"plans": READ}), ("orders",))
    assert await scene.of("plans") == {"plans": ALL}


async def test_the_rights_of_a_connection_are_bounded() -> None:
    names = [f"t{number}" for number in range(TOPICS_MAX + 5)]
    scene = Scene(Twin(dict.fromkeys(names, READ)))
    assert len(await scene.of(*names)) == TOPICS_MAX + 5
    assert len(scene.twin.rights) == TOPICS_MAX
