"""Answers about the whole cluster: all pages of one, and the nodes missing in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from strandline.cli.asking import Answer
from strandline.cli.client import PAGES_MAX, NodeClient
from strandline.cli.exit_codes import ExitCode
from strandline.cli.output import print_warning

PAGE_ITEMS = 1_000

AllNodesOption = Annotated[
    bool,
    typer.Option(
        "--all-nodes", help="Of every node; a node that does not answer is named, exit code 8."
    ),
]


def whole_view(
    client: NodeClient, path: str, items: str, *, most: int | None = None, **params: object
) -> dict[str, Any]:
    """The first page of a view, with at most `most` items of all pages; `next_cursor` continues
    after them. If a node did not answer for one of the pages, `nodes` says so.
    """
    view: dict[str, Any] = {}
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        left = PAGE_ITEMS if most is None else most - len(view.get(items, ()))
        page = client.get(path, cursor=cursor, limit=min(left, PAGE_ITEMS), **params)
        if view:
            view[items] += page[items]
            view["nodes"] = _both(view["nodes"], page["nodes"])
        else:
            view = page
        cursor = page["next_cursor"]
        if cursor is None or (most is not None and len(view[items]) >= most):
            break
    view[items] = view[items][:most]
    view["next_cursor"] = cursor
    return view


def _both(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    nodes = {each["node"]: each for each in before}
    for each in now:
        if nodes.get(each["node"], {"answered": True})["answered"]:
            nodes[each["node"]] = each
    return [nodes[node_id] for node_id in sorted(nodes)]


def answer_of_all(
    view: dict[str, Any], show: Callable[[], None], document: Any | None = None
) -> Answer:
    """The answer for `view`, with a line on standard error for each node missing in it; `document`,
    if given, is printed instead with `--json`.
    """
    silent = [each for each in view["nodes"] if not each["answered"]]
    for each in silent:
        reason = str(each["reason"]).replace("_", " ")
        print_warning(f"node {each['node']} is missing here, {reason}: {each['text']}")
    code = ExitCode.INCOMPLETE if silent else ExitCode.OK
    return Answer(view if document is None else document, show, code)
