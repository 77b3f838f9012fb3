"""`strandline audit`: the record of deletions and moves that a node keeps."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from rlm.control.audit import AuditAction
from strandline.cli.asking import Answer, asks_node
from strandline.cli.client import NodeClient
from strandline.cli.output import human_bytes, human_time, print_table
from strandline.cli.whole_cluster import PAGE_ITEMS, AllNodesOption, answer_of_all, whole_view


@asks_node
def audit_command(
    client: NodeClient,
    topic: Annotated[str | None, typer.Option(help="Only lines about this topic.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only lines about this partition.")
    ] = None,
    action: Annotated[AuditAction | None, typer.Option(help="Only this action.")] = None,
    segment: Annotated[
        str | None, typer.Option(help="Only lines about the segment with this id.")
    ] = None,
    all_nodes: AllNodesOption = False,
    lines: Annotated[int, typer.Option(min=1, max=1_000_000, help="The most lines to show.")] = 100,
) -> Answer:
    """Show deletions and moves with their reasons, newest first.

    Example: `strandline audit --topic orders --action objects_deleted`; `strandline audit
    --all-nodes`
    """
    query = {"topic": topic, "partition": partition, "action": action, "segment": segment}
    columns = ["time", "action", "partition", "offsets", "size", "segment", "by", "why"]
    if not all_nodes:
        limit = min(lines, PAGE_ITEMS)
        found = list(
            islice(client.pages_of_node("/v1/audit", "lines", limit=limit, **query), lines)
        )
        return Answer(found, lambda: print_table(columns, map(_row, found)))
    view = whole_view(client, "/v1/cluster/audit", "lines", most=lines, **query)
    rows = [(line["node"], *_row(line)) for line in view["lines"]]
    return answer_of_all(view, lambda: print_table(["node", *columns], rows))


def _row(line: dict[str, Any]) -> tuple[object, ...]:
    start, end, size = line["start_offset"], line["end_offset"], line["size_bytes"]
    return (
        human_time(line["at_ms"]),
        line["action"].replace("_", " "),
        None if line["topic"] is None else f"{line['topic']}-{line['partition']}",
        start if end is None else f"{start}-{end}",
        None if size is None else human_bytes(size),
        line["segment_id"],
        line["by"],
        line["why"],
    )
