"""`strandline pause` and `strandline resume`: for a node, for all nodes, or for a topic."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from kafka_formats.errors import InvalidRequest
from rlm.cluster_settings.known_settings import PAUSES
from rlm.node_files.kill_switches import WHY_CHARACTERS_MAX, Switch
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.known_topics import AheadOption, check_topic_known
from strandline.cli.output import human_time, print_text
from strandline.cli.policy_changes import change_policy, standing_policy
from strandline.cli.quantities import parse_wait_ms
from strandline.cli.setting_changes import (
    CLUSTER,
    ClusterOption,
    NodeOption,
    Scope,
    WhyOption,
    change_setting,
    chosen_scope,
    scope_text,
    set_text,
    standing_settings,
)
from strandline.node import ambient

ASKED_EVERY_S = 1.0
IN_FLIGHT = "copies_in_flight"
WhatArgument = Annotated[Switch, typer.Argument(help="What to pause or resume.")]
TopicOption = Annotated[
    str | None,
    typer.Option(
        help="Only this topic, on all nodes (role admin); default: all topics, on one node."
    ),
]


@asks_node
def pause_command(
    client: NodeClient,
    what: WhatArgument,
    topic: TopicOption = None,
    ahead: AheadOption = False,
    cluster: ClusterOption = False,
    node: NodeOption = None,
    why: WhyOption = "",
    wait: Annotated[
        str | None,
        typer.Option(help="Longest wait for the node's last copy to end: `5m`."),
    ] = None,
) -> Answer:
    """Pause copying or deleting: of a node, of all nodes, or of one topic.

    It takes effect at once and lasts until `strandline resume`, also over restarts; copies under
    way finish. `--cluster`, `--node` and `--topic` are recorded in the metadata log; without them
    it is the switch of the queried node, which needs no quorum. Exit code 8: a copy was still under
    way when the wait ended.

    Example: `strandline pause deleting --why "the policy of orders is wrong"`
    """
    scope = _scope(topic, cluster=cluster, node=node)
    if wait is not None and (scope is not None or topic is not None or what is not Switch.COPYING):
        raise InvalidRequest("only a pause of a node's copying can be waited for", field="--wait")
    wait_ms = 0 if wait is None else parse_wait_ms(wait, field="--wait")
    why = why[:WHY_CHARACTERS_MAX]
    if scope is not None:
        return _pause_scope(client, what, scope, paused=True, why=why)
    answer = _pause(client, topic, what, paused=True, ahead=ahead, why=why)
    if wait is not None:
        answer = _without_copies(client, answer, until_ms=ambient.now_ms() + wait_ms)
    waits = wait is not None and answer[IN_FLIGHT]
    return _answer(answer, what, topic, ExitCode.INCOMPLETE if waits else ExitCode.OK)


@asks_node
def resume_command(
    client: NodeClient,
    what: WhatArgument,
    topic: TopicOption = None,
    ahead: AheadOption = False,
    cluster: ClusterOption = False,
    node: NodeOption = None,
    why: WhyOption = "",
) -> Answer:
    """Resume what `strandline pause` paused.

    `--node N` exempts one node from a cluster pause until the cluster is next paused or resumed.
    The node's own switch and topic pauses stay.

    Example: `strandline resume copying --topic orders`
    """
    scope, why = _scope(topic, cluster=cluster, node=node), why[:WHY_CHARACTERS_MAX]
    if scope is not None:
        return _pause_scope(client, what, scope, paused=False, why=why)
    answer = _pause(client, topic, what, paused=False, ahead=ahead, why=why)
    return _answer(answer, what, topic)


def _scope(topic: str | None, *, cluster: bool, node: int | None) -> Scope | None:
    scope = chosen_scope(cluster=cluster, node=node)
    if scope is not None and topic is not None:
        raise InvalidRequest("these exclude each other: give one of them", field="--topic")
    return scope


def _pause_scope(
    client: NodeClient, what: Switch, scope: Scope, *, paused: bool, why: str
) -> Answer:
    """Pause or resume by a setting in the metadata log."""
    setting = PAUSES[what]
    value: bool | None = True
    if not paused:
        standing = standing_settings(client, setting)
        # Record an exception only while the cluster is paused; otherwise it would override the next
        # cluster pause.
        wider = any(each["scope"] == CLUSTER and each["value"] == "true" for each in standing)
        value = False if scope != CLUSTER and wider else None
    answer = change_setting(client, setting, scope, value, why)
    standing = standing_settings(client, setting)
    rest = [each for each in standing if each["value"] == "true"]
    # These exceptions to an earlier pause of the cluster would override the next one.
    ended = [each for each in standing if each["value"] == "false"] if scope == CLUSTER else []
    for each in ended:
        change_setting(client, setting, each["scope"], None)

    def show() -> None:
        state = "is paused" if paused else "goes on"
        if paused and answer["setting"] is not None and not answer.get("changed", True):
            state = f"is paused already, {set_text(answer['setting'])}"
        print_text(f"{what} of {scope_text(scope)} {state}")
        for each in ended:
            print_text(f"{scope_text(each['scope'])} is no exception any more: {set_text(each)}")
        for each in rest if not paused else ():
            print_text(f"still paused: {set_text(each)}")

    return Answer(answer | {"paused": rest}, show)


def _without_copies(client: NodeClient, answer: Any, *, until_ms: int) -> Any:
    """The switches once no copy is under way, or at `until_ms`."""
    while answer[IN_FLIGHT] and ambient.now_ms() < until_ms:
        asyncio.run(ambient.sleep(ASKED_EVERY_S))
        answer = client.get("/v1/node/switches")
    return answer


def _pause(
    client: NodeClient, topic: str | None, what: Switch, *, paused: bool, ahead: bool, why: str
) -> Any:
    """Change one switch: of the node, or of a topic's policy and nothing else of that."""
    if topic is None:
        body = {"paused": paused, "why": why}
        return client.change_node("PUT", f"/v1/node/switches/{what}", body)
    policy = standing_policy(client, topic)
    if policy["offset"] is None and not ahead:
        check_topic_known(client, topic, to_change=True)
    field = "copy_paused" if what is Switch.COPYING else "delete_paused"
    return change_policy(client, policy, {field: paused}, why)


def _answer(
    answer: dict[str, Any], what: Switch, topic: str | None, code: ExitCode = ExitCode.OK
) -> Answer:
    return Answer(answer, lambda: print_text(_text(answer, what, topic)), code)


def _text(answer: dict[str, Any], what: Switch, topic: str | None) -> str:
    if topic is not None:
        field = "copy_paused" if what is Switch.COPYING else "delete_paused"
        state = "is paused" if answer[field] else "goes on"
        return f"{what} of {topic} {state}, on all nodes"
    pause = answer[what]
    if pause is None:
        return f"{what} goes on, on node {answer['node_id']}"
    why = f": {pause['why']}" if pause["why"] else ""
    since = human_time(pause["since_ms"])
    left = f"; copies under way: {answer[IN_FLIGHT]}" if what is Switch.COPYING else ""
    return (
        f"{what} is paused on node {answer['node_id']} since {since}, by {pause['by']}{why}{left}"
    )
