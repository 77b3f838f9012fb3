"""`strandline pause` and `strandline resume`: copying or deleting, of a node or of one topic."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rlm.kill_switches import WHY_CHARACTERS_MAX, Switch
from strandline.cli.answers import path_part
from strandline.cli.client import DEFAULT_URL, JsonOption, NodeClient, TokenFileOption, UrlOption
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import console, human_time, print_json

WhatArgument = Annotated[Switch, typer.Argument(help="What is meant.")]
TopicOption = Annotated[
    str | None,
    typer.Option(help="This topic, on all nodes (role admin); default: all topics, on one node."),
]


def pause_command(
    what: WhatArgument,
    topic: TopicOption = None,
    why: Annotated[str, typer.Option(help="For whoever finds it paused.")] = "",
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Pause copying or deleting: of the node that is asked, or of one topic everywhere.

    It holds at once and until `strandline resume`, through restarts too; copies under way finish.
    Without `--topic` each node has its own switch: ask each, with `--url`.

    Example: `strandline pause deleting --why "the policy of orders is wrong"`
    """
    return _throw(what, True, topic, why[:WHY_CHARACTERS_MAX], (url, token_file), as_json=json)


def resume_command(
    what: WhatArgument,
    topic: TopicOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    json: JsonOption = False,
) -> int:
    """Resume what `strandline pause` paused.

    Example: `strandline resume copying --topic orders`
    """
    return _throw(what, False, topic, "", (url, token_file), as_json=json)


def _throw(
    what: Switch,
    paused: bool,
    topic: str | None,
    why: str,
    node: tuple[str, Any],
    *,
    as_json: bool,
) -> int:
    with NodeClient(*node) as client:
        if topic is not None:
            answer = pause_topic(client, topic, what, paused=paused)
        else:
            body: dict[str, object] = {"paused": paused, "why": why}
            answer = client.change("PUT", f"/v1/node/switches/{what}", body)
    if as_json:
        print_json(answer)
    else:
        console.print(_text(answer, what, topic), markup=False)
    return ExitCode.OK


def pause_topic(client: NodeClient, topic: str, what: Switch, *, paused: bool) -> Any:
    """Change one switch of a topic's policy, and nothing else of it."""
    path = f"/v1/topics/{path_part(topic)}/policy"
    policy = client.get(path)
    field = "copy_paused" if what is Switch.COPYING else "delete_paused"
    kept = ("retention_ms", "retention_bytes", "copy_paused", "delete_paused")
    body = {name: policy[name] for name in kept} | {field: paused}
    return client.change("PUT", path, body | {"replaces_offset": policy["offset"]})


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
    return f"{what} is paused on node {answer['node_id']} since {since}, by {pause['by']}{why}"
